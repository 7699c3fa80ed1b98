"""The parts of scripts/prove: each runs commands of the repository and says what they show."""

import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# At least so often in a full run, and so many in each.
LEAST_RUNS = 10_000
LEAST_WORKERS = 3
LEAST_MESSAGES = 20
LEAST_EXECUTIONS = 10_000
LEAST_FAULTS = 1_000
MOST_RUNS_PER_GUARD = 1_000
LEAST_GUARDS = 10
# Each branch of the protocol, so often in a thousand runs.
LEAST_BRANCHES = 20

FAULTS = ["fail-before", "fail-after", "lose-response", "cut", "delay", "duplicate-later", "hang", "silence", "conflict",
          "in-progress", "throttle", "overload", "kill", "freeze", "lost-ack", "skewed-clock", "drifting-clock", "clock-step", "double-fire", "key-conflict", "redrive", "instance-replaced",
          "edit-during-render", "origin-fails", "origin-redirects", "origin-unreachable", "origin-hangs", "origin-empty",
          "renderer-panics", "origin-forbidden", "origin-cache", "object-loss", "lease-outage", "forgotten-token",
          "other-configuration", "freeze-stops-timers", "freeze-stops-clocks",
          "notification-outage", "invalidate-path", "invalidate-prefix", "pin", "unpin", "purge", "roll-back",
          "foreign-commit", "foreign-pointer"]
OUTCOMES = ["committed", "unchanged", "already_covered", "replayed", "busy", "too_close", "superseded", "pinned", "failed",
            "rejected", "hash_mismatches", "notifications_pending"]
# What is checked: the invariants, and what follows from them.
PROPERTIES = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "Pin", "Rights", "Readers", "Notifications"]
# Refusals by DynamoDB that the code must tell apart. Conflicts, throttling and transactions in progress are faults of the wire.
REFUSALS = ["ConditionalCheckFailed on META", "ConditionalCheckFailed on LOCK", "ConditionalCheckFailed on REQ",
            "ConditionalCheckFailedException on LOCK", "ConditionalCheckFailedException on REQ"]
# Each guard of the protocol that can be taken away on the wire; the first three are found soonest, and are tried in every build.
GUARDS = ["busy-is-not-acked", "upload-before-commit", "source-before-render", "meta-condition", "acquire-free",
          "lock-token-condition", "claim-once", "takeover-exact", "takeover-of-expired", "give-back-conditioned",
          "coverage-epsilon", "foreign-row-covers-nothing", "reject-before-ack", "pin-moves-meta", "notification-is-marked",
          "notification-is-found", "operator-notification-is-marked", "clock-steps-are-noticed"]
# Suites with a promise of their own.
SUITES = [("Redelivery finishes what a crash left, with one commit per request", ["crashes", "every_await", "chaos"]),
          ("What is published the CDN forgets and listeners hear of, whoever dies in between", ["notifications", "notifications_pending"]),
          ("Readers get a page while DynamoDB, S3 or SQS are down, hung or throttled", ["outages", "stampede"]),
          ("The wish for a new page is sent although the sandbox is frozen after the reply", ["freeze"]),
          ("Rows of other languages' helpers are read, replaced and never misread; 1,000 rounds of turns",
           ["interop", "foreign_writers", "foreign_rows", "foreign_pointers"]),
          ("Nobody reads another tenant's page, whatever the host, path, header or cookie says",
           ["hosts", "keys", "requests", "previews"]),
          ("Over HTTP only what is signed, now and once, is believed", ["trigger", "trigger_attacks"]),
          ("Double fires are one message, repeated sends one wish, and no change is swallowed",
           ["double_fires", "retries", "batches", "sending"])]


class Proof:
    """What a part has shown, and what not."""

    def __init__(self, quick, tell):
        self.quick = quick
        self.tell = tell
        self.rows = []
        self.tables = {}

    def show(self, promise, by, command, figure, holds):
        self.rows.append({"promise": promise, "by": by, "command": command, "figure": figure, "holds": holds})
        self.tell(f"{'ok  ' if holds else 'FAIL'}  {promise}: {figure}")

    def table(self, title, heads, rows):
        self.tables[title] = {"heads": heads, "rows": rows}
        self.tell(f"\n      {title}")
        for name, *cells in rows:
            self.tell(f"      {name:<44} " + "  ".join(f"{cell:>12,}" if isinstance(cell, int) else cell for cell in cells))
        self.tell("")


def run(*command):
    """Runs a command; its exit code and its standard output."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def binary(proof, name):
    """A program of ours: for a quick proof the one that the tests have built already."""
    if proof.quick:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--workspace", "--bin", name], cwd=ROOT, check=True)
        return f"target/debug/{name}"
    return {"everfresh-simulate": "scripts/simulate", "everfresh-load": "scripts/load"}[name]


def model(proof):
    command = ["scripts/model", "--json"] + (["--quick"] if proof.quick else [])
    code, out = run(*command)
    rows = json.loads(out)["lines"] if out.strip() else []
    scopes = [row["states"] for row in rows if row.get("kind") == "scope"]
    removals = sum(row.get("kind") == "removal" for row in rows)
    figure = f"{len(scopes)} scopes hold in {sum(scopes):,} states; {removals} removals of guards, each missed or known to be redundant"
    proof.show("The protocol keeps its invariants in every order of events", "model (docs/model.md)", "scripts/model", figure,
               code == 0 and len(scopes) > 0 and removals > 0)
    return proof


def suites(proof):
    if proof.quick:
        # scripts/test has just run them.
        return proof
    for promise, names in SUITES:
        tests = [argument for name in names for argument in ("--test", name)]
        code, out = run("cargo", "test", "--quiet", "--locked", "--workspace", *tests)
        passed = sum(int(number) for number in re.findall(r"(\d+) passed", out))
        proof.show(promise, ", ".join(f"`{name}.rs`" for name in names), "cargo test --workspace " + " ".join(tests),
                   f"{passed} tests", code == 0 and passed > 0)
    return proof


def simulate(proof, *arguments):
    code, out = run(binary(proof, "everfresh-simulate"), "--json", *arguments)
    return code, json.loads(out) if out.strip() else {}


def simulation(proof):
    seeds = 40 if proof.quick else LEAST_RUNS
    by, command = "simulation", f"scripts/simulate --seeds {seeds}"
    code, report = simulate(proof, "--seeds", str(seeds))
    checks = report.get("checks", {})
    figure = (f"{report.get('runs', 0):,} runs, {report.get('messages', 0):,} messages, {report.get('steps', 0):,} requests, "
              f"{report.get('commits', 0):,} commits, {sum(checks.values()):,} checks, {len(report.get('broken', []))} broken")
    proof.show("The real code keeps I1 to I7 under every fault", by, command, figure, code == 0 and report.get("runs", 0) >= seeds)
    workers, messages = report.get("fewest_workers") or 0, report.get("fewest_messages") or 0
    proof.show("Every run has enough to do", by, command, f"at least {workers} workers, and {messages} messages of producers",
               workers >= LEAST_WORKERS and messages >= LEAST_MESSAGES)
    for broken in report.get("broken", [])[:10]:
        proof.tell(f"      {broken['property']} broken: scripts/simulate --replay {broken['seed']}")
    faults, least = report.get("faults", {}), 1 if proof.quick else LEAST_FAULTS
    rare = [name for name in FAULTS if faults.get(name, 0) < least]
    known = report.get("known", {})
    # What the simulation has and this file does not list would be counted by nobody.
    unlisted = sorted({*faults, *known.get("faults", [])} - set(FAULTS)) + sorted(set(known.get("guards", [])) - set(GUARDS))
    proof.show("Every kind of fault happens", by, command,
               f"{len(FAULTS)} kinds, the rarest {min((faults.get(name, 0) for name in FAULTS)):,} times"
               + (f"; fewer than {least:,}: {', '.join(rare)}" if rare else "")
               + (f"; not listed: {', '.join(unlisted)}" if unlisted else ""), not rare and not unlisted)
    thin = [name for name in PROPERTIES if checks.get(name, 0) < seeds]
    proof.show("Every invariant is checked in every run", by, command,
               f"{len(PROPERTIES)} properties, the rarest {min((checks.get(name, 0) for name in PROPERTIES)):,} times"
               + (f"; fewer than {seeds:,}: {', '.join(thin)}" if thin else ""), not thin)
    again = 4 if proof.quick else 20
    traces = [simulate(proof, "--seeds", str(again))[1].get("trace") for _ in range(2)]
    proof.show("The same seed gives the same run, also in another process", by, f"scripts/simulate --seeds {again} --json",
               f"{again} seeds, trace {str(traces[0])[:16]}", traces[0] is not None and traces[0] == traces[1])
    # Forty runs do not meet what happens once in a hundred.
    seen = {**report.get("outcomes", {}), **report.get("cancellations", {})}
    rare_ones = {"superseded", "hash_mismatches"} if proof.quick else set()
    never = [name for name in OUTCOMES + REFUSALS if not seen.get(name) and name not in rare_ones]
    proof.show("Every outcome and every class of refusal occurs", by, command,
               f"{len(OUTCOMES)} outcomes, {len(REFUSALS)} refusals" + (f"; never: {', '.join(never)}" if never else ""), not never)
    branches(proof, report, seeds, command)
    for title, name in [("Faults", "faults"), ("Outcomes", "outcomes"), ("Refusals", "cancellations"), ("Checks", "checks"),
                        ("Branches", "branches")]:
        proof.table(f"{title} in the simulation", [title, "Times"], sorted(report.get(name, {}).items()))
    return proof


def branches(proof, report, seeds, command):
    """Every branch of the protocol is taken often enough that a mistake there would show. A quick proof has too few runs for that: it sees
    that branches are counted at all, and none that is not listed."""
    known, met = report.get("known", {}).get("branches", []), report.get("branches", {})
    unlisted = sorted(set(met) - set(known))
    if proof.quick:
        holds = len(known) > 0 and sum(name in met for name in known) >= len(known) // 2 and sum(met.values()) >= 20 * seeds
        figure = f"{sum(name in met for name in known)} of {len(known)} branches met, {sum(met.values()):,} times in all"
    else:
        least = LEAST_BRANCHES * seeds // 1_000
        rare = [f"{name} {met.get(name, 0):,}" for name in known if met.get(name, 0) < least]
        holds = len(known) > 0 and not rare
        figure = (f"{len(known)} branches, the rarest {min((met.get(name, 0) for name in known), default=0):,} times"
                  + (f"; fewer than {least:,}: {', '.join(rare)}" if rare else ""))
    proof.show("Every branch of the protocol is taken", "simulation", command,
               figure + (f"; not listed: {', '.join(unlisted)}" if unlisted else ""), holds and not unlisted)


def guards(proof):
    found = {}
    for guard in GUARDS[:3] if proof.quick else GUARDS:
        _, report = simulate(proof, "--seeds", str(MOST_RUNS_PER_GUARD), "--without", guard)
        broken = report.get("broken", [])
        found[guard] = (broken[0]["property"], report["runs"], broken[0]["seed"]) if broken else None
    missed = [guard for guard, where in found.items() if where is None]
    enough = len(found) - len(missed) >= (3 if proof.quick else LEAST_GUARDS)
    proof.show("A missing guard is noticed", "simulation, each guard taken away on the wire",
               f"scripts/simulate --seeds {MOST_RUNS_PER_GUARD} --without GUARD",
               f"{len(found) - len(missed)} of {len(found)} found, the last after "
               f"{max((where[1] for where in found.values() if where), default=0)} runs"
               + (f"; not found: {', '.join(missed)}" if missed else ""), enough and not missed)
    proof.table("Missing guards", ["Without", "Broke", "After runs", "Replay"],
                [[guard, where[0], where[1], f"`scripts/simulate --replay {where[2]} --without {guard}`"]
                 for guard, where in found.items() if where])
    return proof


def script(promise, by, command, pattern):
    """A part that is one script, which says itself what it has shown. A quick proof leaves it out: scripts/test has just run it, or it takes
    too long for every build."""
    def prove(proof):
        if proof.quick:
            return proof
        code, out = run(*command.split())
        said = re.findall(pattern, out, re.M)
        proof.show(promise, by, command, said[-1] if said else "no figures", code == 0 and bool(said))
        return proof

    return prove


def fuzz(proof):
    promise = "Hostile bytes do no harm"
    if proof.quick:
        inputs = sum(1 for _ in (ROOT / "fuzz/corpus").glob("*/*"))
        command = ["cargo", "test", "--quiet", "--locked", "--workspace", "--test", "corpus"]
        code, _ = run(*command)
        proof.show(promise, "`corpus.rs`", " ".join(command), f"{inputs} inputs replayed", code == 0)
        return proof
    code, out = run("scripts/fuzz", "60")
    executions = {name: int(number) for name, number in re.findall(r"^(\w+) +(\d+) executions$", out, re.M)}
    targets = sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))
    few = [name for name, number in executions.items() if number < LEAST_EXECUTIONS]
    proof.show(promise, "cargo-fuzz, and `corpus.rs` in every build", "scripts/fuzz 60",
               f"{sum(executions.values()):,} executions of {len(executions)} targets, none found anything"
               + (f"; fewer than {LEAST_EXECUTIONS:,}: {', '.join(few)}" if few else ""),
               code == 0 and sorted(executions) == targets and not few)
    proof.table("Fuzzing", ["Target", "Executions"], sorted(executions.items()))
    return proof


def load(proof):
    rate, seconds = 30, 20 if proof.quick else 180
    arguments = ["--rate", str(rate), "--seconds", str(seconds)]
    code, out = run(binary(proof, "everfresh-load"), "--json", *arguments)
    report = json.loads(out) if out.strip() else {}
    p99 = report.get("staleness_ms", {}).get("p99")
    figure = (f"{report.get('messages', 0):,} messages ({report.get('double_fires', 0):,} double fires), "
              f"{report.get('commits', 0):,} commits, {report.get('duplicates_prevented', 0):,} duplicates prevented, "
              f"{report.get('lost')} lost, staleness p99 {p99} ms")
    # Expected are three messages a second; see docs/testing.md.
    enough = report.get("messages", 0) >= rate * seconds and report.get("double_fires", 0) >= rate * seconds // 11
    proof.show("Ten times the expected traffic loses nothing", "load on the local stack, one message in ten fired twice",
               "scripts/load " + " ".join(arguments), figure, code == 0 and report.get("lost") == 0 and enough)
    return proof


def mutation(proof):
    if proof.quick:
        return proof
    code, out = run("scripts/mutants")
    counts = {word: int(number) for word, number in re.findall(r"^(caught|simulated|missed|explained|unviable|timeout) +(\d+)$", out, re.M)}
    proof.show("A changed decision or step fails a test or a run of the simulation",
               "cargo-mutants on the decisions, the ledger and both flows; survivors by the simulation", "scripts/mutants",
               ", ".join(f"{number} {word}" for word, number in counts.items()) or "no figures",
               code == 0 and counts.get("caught", 0) > 0)
    return proof


def packages(proof):
    if proof.quick:
        return proof
    code, out = run("scripts/package", "--sam")
    weights = re.findall(r"^(everfresh-\w+) +(\w+) +[\d.]+ +([\d.]+) +([\d.]+) +([\d.]+)$", out, re.M)
    figure = ", ".join(f"{name} {zipped} MB" for name, _, _, zipped, _ in weights) or "no figures"
    proof.show("Both functions fit into their budget, and `sam build` makes the same bytes", "cargo-lambda, SAM", "scripts/package --sam",
               figure, code == 0 and len(weights) == 2 and "the same two binaries" in out)
    proof.table("Packages", ["Function", "Machine", "Binary MB", "Zip MB", "Budget MB"], [list(row) for row in weights])
    return proof


PARTS = {
    "model": model,
    "suites": suites,
    "simulation": simulation,
    "guards": guards,
    "conformance": script("The embedded engines answer as another emulator does", "`conformance.rs` against ministack",
                          "scripts/conformance", r"^conformance: (.+)$"),
    "fuzz": fuzz,
    "mutation": mutation,
    "load": load,
    "template": script("The template is safe, and rules notice when it is not", "SAM, cfn-lint, `infra/policy_test.py`",
                       "scripts/template", r"^\d+ rules, .+$"),
    "packages": packages,
    "end-to-end": script("The template's stack does what its clients expect", "ministack, with roles that are enforced",
                         "scripts/e2e", r"^(\d+ steps) end to end"),
    "shared-cache": script("Shared caches keep, revalidate and outlast as the headers say", "Varnish, nginx",
                           "scripts/shared-cache", r"^\d+ of \d+ checks passed$"),
    "supply-chain": script("Licences and sources are those that are allowed, and there is a bill of materials", "cargo-deny, SBOM",
                           "scripts/supply-chain", r"^.*\S.*$"),
}
