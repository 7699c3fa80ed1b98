"""The parts of scripts/prove: each runs commands of the repository and compares their figures with
what is required."""

import functools
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# What a full run requires: of all runs of the simulation together, or of each.
LEAST_RUNS = 10_000
LEAST_WORKERS = 3
LEAST_MESSAGES = 20
LEAST_EXECUTIONS = 10_000
# Each execution of a target of this kind is several requests through the SDK, with a sanitizer.
LEAST_EXECUTIONS_OF_ROWS = 1_000
LEAST_FAULTS = 1_000
MOST_RUNS_PER_GUARD = 1_000
LEAST_GUARDS = 10
# How often each branch of the protocol must be taken in a thousand runs.
LEAST_BRANCHES = 20

# Test files that show a promise of their own.
SUITES = [("Redelivery completes what a crash interrupted, with one commit per request", ["crashes", "every_await", "chaos"]),
          ("After a commit CloudFront is invalidated and subscribers are notified, even if the worker crashes in between",
           ["notifications", "notifications_pending"]),
          ("Requests get a page while DynamoDB, S3 or SQS fail, hang or throttle", ["outages", "stampede"]),
          ("A regeneration is enqueued although the sandbox is frozen after the response", ["freeze"]),
          ("Rows of foreign writers are read, replaced and never misread; 1,000 rounds of alternating writes",
           ["interop", "foreign_writers", "foreign_rows", "foreign_pointers"]),
          ("No request reads another tenant's page, whatever its host, path, headers or cookies",
           ["hosts", "keys", "requests", "previews"]),
          ("The HTTP trigger accepts only requests that are signed, recent and not replayed", ["trigger", "trigger_attacks"]),
          ("Double sends are one message, retried sends one request, and no change is lost",
           ["deduplication", "retries", "batches", "sending"])]

# Tables of the simulation with one row for each name that it lists, and the kind of these names.
COUNTED = {"Faults in the simulation": "faults", "Checks in the simulation": "properties",
           "Branches in the simulation": "branches"}


class Proof:
    """The rows and tables of one part."""

    def __init__(self, quick, log):
        self.quick = quick
        self.log = log
        self.rows = []
        self.tables = {}

    def show(self, promise, by, command, figure, holds):
        self.rows.append({"promise": promise, "by": by, "command": command, "figure": figure, "holds": holds})
        self.log(f"{'ok  ' if holds else 'FAIL'}  {promise}: {figure}")

    def table(self, title, heads, rows):
        self.tables[title] = {"heads": heads, "rows": rows}
        self.log(f"\n      {title}")
        for name, *cells in rows:
            self.log(f"      {name:<44} " + "  ".join(f"{cell:>12,}" if isinstance(cell, int) else cell for cell in cells))
        self.log("")


def run(*command):
    """Runs a command. Returns its exit code and its standard output."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def binary(proof, name):
    """The command of a program: for a quick proof the debug build that scripts/test has already
    made, with the same features."""
    if proof.quick:
        debug_build()
        return f"target/debug/{name}"
    return {"everfresh-model": "scripts/model", "everfresh-simulate": "scripts/simulate", "everfresh-load": "scripts/load"}[name]


@functools.cache
def debug_build():
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--workspace", "--all-targets"], cwd=ROOT, check=True)


def model(proof):
    code, out = run(binary(proof, "everfresh-model"), "--json", *(["--quick"] if proof.quick else []))
    rows = json.loads(out)["lines"] if out.strip() else []
    scopes = [row["states"] for row in rows if row.get("kind") == "scope"]
    removals = sum(row.get("kind") == "removal" for row in rows)
    figure = f"{len(scopes)} scopes hold in {sum(scopes):,} states; {removals} guards removed, each detected or known to be redundant"
    proof.show("The protocol keeps its invariants in every order of events", "model (docs/model.md)", "scripts/model", figure,
               code == 0 and len(scopes) > 0 and removals > 0)
    return proof


def suites(proof):
    for _, names in SUITES:
        for name in names:
            if not list((ROOT / "crates").glob(f"**/tests/{name}.rs")):
                raise SystemExit(f"scripts/lib/proofs.py: SUITES names tests/{name}.rs, which no crate has")
    if proof.quick:
        # scripts/test has just run them.
        return proof
    for promise, names in SUITES:
        tests = [argument for name in names for argument in ("--test", name)]
        code, out = run("cargo", "test", "--quiet", "--locked", "--workspace", *tests)
        passed = sum(int(number) for number in re.findall(r"(\d+) passed", out))
        proof.show(promise, files(names), "cargo test --workspace " + " ".join(tests),
                   f"{passed} tests", code == 0 and passed > 0)
    return proof


def files(suites):
    """The test files of suites, as the page names them."""
    return ", ".join(f"`{name}.rs`" for name in suites)


def simulate(proof, *arguments):
    code, out = run(binary(proof, "everfresh-simulate"), "--json", *arguments)
    return code, json.loads(out) if out.strip() else {}


def known(proof):
    """Names of the faults, guards, properties, outcomes, refusals and branches, as the simulation
    lists them."""
    code, listed = simulate(proof, "--list")
    if code:
        raise SystemExit(f"everfresh-simulate --list failed with status {code}")
    return {kind: listed["known"][kind] for kind in ("faults", "guards", "properties", "outcomes", "refusals", "branches")}


def simulation(proof):
    names = known(proof)
    seeds = 40 if proof.quick else LEAST_RUNS
    by, command = "simulation", f"scripts/simulate --seeds {seeds}"
    code, report = simulate(proof, "--seeds", str(seeds))
    checks = report.get("checks", {})
    figure = (f"{report.get('runs', 0):,} runs, {report.get('messages', 0):,} messages, {report.get('steps', 0):,} requests, "
              f"{report.get('commits', 0):,} commits, {sum(checks.values()):,} checks, {len(report.get('broken', []))} broken")
    proof.show("The real code keeps I1 to I7 under every fault", by, command, figure, code == 0 and report.get("runs", 0) >= seeds)
    workers, messages = report.get("fewest_workers") or 0, report.get("fewest_messages") or 0
    proof.show("Every run has enough workers and messages", by, command, f"at least {workers} workers, and {messages} messages of producers",
               workers >= LEAST_WORKERS and messages >= LEAST_MESSAGES)
    for broken in report.get("broken", [])[:10]:
        proof.log(f"      {broken['property']} broken: scripts/simulate --replay {broken['seed']}")
    faults, least = report.get("faults", {}), 1 if proof.quick else LEAST_FAULTS
    frequent(proof, "Every kind of fault occurs", command, names["faults"], "kinds", faults, least)
    frequent(proof, "Every invariant is checked in every run", command, names["properties"], "properties", checks, seeds)
    again = 4 if proof.quick else 20
    traces = [simulate(proof, "--seeds", str(again))[1].get("trace") for _ in range(2)]
    proof.show("The same seed gives the same run, also in another process", by, f"scripts/simulate --seeds {again} --json",
               f"{again} seeds, trace {str(traces[0])[:16]}", traces[0] is not None and traces[0] == traces[1])
    # Forty runs are too few for an outcome of one run in a hundred.
    seen = {**report.get("outcomes", {}), **report.get("cancellations", {})}
    expected = names["outcomes"] + names["refusals"]
    rare = {"superseded", "key_conflicts", "withdrawals_refused", "ConditionalCheckFailed on WITHDRAWN"} if proof.quick else set()
    never = [name for name in expected if not seen.get(name) and name not in rare]
    proof.show("Every outcome and every class of refusal occurs", by, command,
               f"{len(names['outcomes'])} outcomes, {len(names['refusals'])} refusals"
               + (f"; never: {', '.join(never)}" if never else ""), len(expected) > 0 and not never)
    branches(proof, names["branches"], report.get("branches", {}), seeds, command)
    for title, name in [("Faults", "faults"), ("Outcomes", "outcomes"), ("Refusals", "cancellations"), ("Checks", "checks"),
                        ("Branches", "branches")]:
        proof.table(f"{title} in the simulation", [title, "Times"], sorted(report.get(name, {}).items()))
    return proof


def frequent(proof, promise, command, names, kind, counts, least):
    """Every name is counted at least `least` times, and no other name is counted."""
    rare = [f"{name} {counts.get(name, 0):,}" for name in names if counts.get(name, 0) < least]
    unlisted = sorted(set(counts) - set(names))
    figure = (f"{len(names)} {kind}, the rarest {min((counts.get(name, 0) for name in names), default=0):,} times"
              + (f"; fewer than {least:,}: {', '.join(rare)}" if rare else "")
              + (f"; not listed: {', '.join(unlisted)}" if unlisted else ""))
    proof.show(promise, "simulation", command, figure, len(names) > 0 and not rare and not unlisted)


def branches(proof, names, counts, seeds, command):
    """Every branch of the protocol is taken so often that the checks would detect a bug in it. A
    quick proof has too few runs for that: it checks that branches are counted at all, and only
    listed ones."""
    promise = "Every branch of the protocol is taken"
    if not proof.quick:
        return frequent(proof, promise, command, names, "branches", counts, LEAST_BRANCHES * seeds // 1_000)
    taken, total, unlisted = sum(name in counts for name in names), sum(counts.values()), sorted(set(counts) - set(names))
    proof.show(promise, "simulation", command,
               f"{taken} of {len(names)} branches taken, {total:,} times in all"
               + (f"; not listed: {', '.join(unlisted)}" if unlisted else ""),
               len(names) > 0 and taken >= len(names) // 2 and total >= 20 * seeds and not unlisted)


def guards(proof):
    found = {}
    names = known(proof)["guards"]
    # The first three need the fewest runs.
    for guard in names[:3] if proof.quick else names:
        _, report = simulate(proof, "--seeds", str(MOST_RUNS_PER_GUARD), "--without", guard)
        broken = report.get("broken", [])
        found[guard] = (broken[0]["property"], report["runs"], broken[0]["seed"]) if broken else None
    missed = [guard for guard, where in found.items() if where is None]
    enough = len(found) - len(missed) >= (3 if proof.quick else LEAST_GUARDS)
    proof.show("A removed guard is detected", "simulation, each guard removed from the requests",
               f"scripts/simulate --seeds {MOST_RUNS_PER_GUARD} --without GUARD",
               f"{len(found) - len(missed)} of {len(found)} detected, the last after "
               f"{max((where[1] for where in found.values() if where), default=0)} runs"
               + (f"; not detected: {', '.join(missed)}" if missed else ""), enough and not missed)
    proof.table("Removed guards", ["Without", "Violated", "After runs", "Replay"],
                [[guard, where[0], where[1], f"`scripts/simulate --replay {where[2]} --without {guard}`"]
                 for guard, where in found.items() if where])
    return proof


def script(promise, by, command, pattern):
    """A part that is one script, whose figure is the last match of a pattern in its output. A quick
    proof leaves it out: scripts/test has just run it, or it takes too long for every build."""
    def prove(proof):
        if proof.quick:
            return proof
        code, out = run(*command.split())
        figures = re.findall(pattern, out, re.M)
        proof.show(promise, by, command, figures[-1] if figures else "no figures", code == 0 and bool(figures))
        return proof

    return prove


def fuzz_targets():
    return sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))


def fuzz(proof):
    promise = "Parsers and the serving function keep their properties for any input"
    if proof.quick:
        inputs = sum(1 for _ in (ROOT / "fuzz/corpus").glob("*/*"))
        command = ["cargo", "test", "--quiet", "--locked", "--workspace", "--test", "corpus"]
        code, _ = run(*command)
        proof.show(promise, "`corpus.rs`", " ".join(command), f"{inputs} inputs replayed", code == 0)
        return proof
    code, out = run("scripts/fuzz", "60")
    executions = {name: int(number) for name, number in re.findall(r"^(\w+) +(\d+) executions$", out, re.M)}
    least = {name: LEAST_EXECUTIONS_OF_ROWS if name.endswith("rows") else LEAST_EXECUTIONS for name in executions}
    few = [name for name, number in executions.items() if number < least[name]]
    proof.show(promise, "cargo-fuzz, and `corpus.rs` in every build", "scripts/fuzz 60",
               f"{sum(executions.values()):,} executions of {len(executions)} targets, no failure"
               + (f"; too few: {', '.join(few)}" if few else ""),
               code == 0 and sorted(executions) == fuzz_targets() and not few)
    proof.table("Fuzzing", ["Target", "Executions"], sorted(executions.items()))
    return proof


def load(proof):
    rate, seconds = 30, 20 if proof.quick else 180
    arguments = ["--rate", str(rate), "--seconds", str(seconds)]
    code, out = run(binary(proof, "everfresh-load"), "--json", *arguments)
    report = json.loads(out) if out.strip() else {}
    p99 = report.get("staleness_ms", {}).get("p99")
    figure = (f"{report.get('messages', 0):,} messages ({report.get('double_fires', 0):,} sent twice), "
              f"{report.get('commits', 0):,} commits, {report.get('duplicates_prevented', 0):,} duplicates prevented, "
              f"{report.get('lost')} lost, staleness p99 {p99} ms")
    # The expected rate is three messages a second; see docs/testing.md.
    enough = report.get("messages", 0) >= rate * seconds and report.get("double_fires", 0) >= rate * seconds // 11
    proof.show("No change is lost at ten times the expected traffic", "load on the local stack, one message in ten sent twice",
               "scripts/load " + " ".join(arguments), figure, code == 0 and report.get("lost") == 0 and enough)
    return proof


def mutation(proof):
    if proof.quick:
        return proof
    code, out = run("scripts/mutants")
    counts = {word: int(number) for word, number in re.findall(r"^(caught|simulated|missed|explained|unviable|timeout) +(\d+)$", out, re.M)}
    proof.show("A mutated decision or step fails a test or the simulation",
               "cargo-mutants on the decisions, the ledger and both flows; the simulation on the survivors", "scripts/mutants",
               ", ".join(f"{number} {word}" for word, number in counts.items()) or "no figures",
               code == 0 and counts.get("caught", 0) > 0)
    return proof


def packages(proof):
    if proof.quick:
        return proof
    code, out = run("scripts/package", "--sam")
    weights = re.findall(r"^(everfresh-\w+) +(\w+) +[\d.]+ +([\d.]+) +([\d.]+) +([\d.]+)$", out, re.M)
    figure = ", ".join(f"{name} {zipped} MB" for name, _, _, zipped, _ in weights) or "no figures"
    proof.show("The packages are within their size limits, and `sam build` makes the same binaries", "cargo-lambda, SAM",
               "scripts/package --sam",
               figure, code == 0 and len(weights) == 3 and "the same three binaries" in out)
    proof.table("Packages", ["Function", "Machine", "Binary MB", "Zip MB", "Limit MB"], [list(row) for row in weights])
    return proof


PARTS = {
    "model": model,
    "suites": suites,
    "simulation": simulation,
    "guards": guards,
    "conformance": script("The embedded engines respond as another emulator does", "`conformance.rs` against ministack",
                          "scripts/conformance", r"^conformance: (.+)$"),
    "fuzz": fuzz,
    "mutation": mutation,
    "load": load,
    "template": script("The templates satisfy the rules, and the rules detect violations", "SAM, cfn-lint, `infra/policy_test.py`",
                       "scripts/template", r"^\d+ rules, .+$"),
    "packages": packages,
    "end-to-end": script("The deployed stack works for its clients", "ministack, with enforced roles",
                         "scripts/e2e", r"^(\d+ steps) end to end"),
    "shared-cache": script("Shared caches store, revalidate and serve stale as the headers say", "Varnish, nginx",
                           "scripts/shared-cache", r"^\d+ of \d+ checks passed$"),
    "http-cache": script("Everfresh behaves as an HTTP cache should", "the suite of cache-tests.fyi, also against nginx and Varnish",
                         "scripts/http-cache-tests", r"^http cache: (.+)$"),
    "frameworks": script("Real apps work behind Everfresh", "Next.js, Astro, SvelteKit, Django, Flask, a static site; Chromium",
                         "scripts/frameworks", r"^\d+ passed, 0 failed$"),
    "rollout": script("Functions of an earlier commit and of this one share a table", "both, before, during and after a roll-out",
                      "scripts/rollout", r"^\d+ steps in \d+ s: (.+)$"),
    "supply-chain": script("All licences and sources are allowed, and there is a bill of materials", "cargo-deny, SBOM",
                           "scripts/supply-chain", r"^.*\S.*$"),
}
