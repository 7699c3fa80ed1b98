"""The latest figures of each part: stored in docs/evidence.json, and written as a page to
docs/evidence.md."""

import datetime
import json
import pathlib
import subprocess

import proofs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIGURES = ROOT / "docs/evidence.json"
PAGE = ROOT / "docs/evidence.md"


def commit():
    """The commit that is checked out, and whether the working tree has changes."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!docs/evidence.*")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def keep(name, part):
    """Stores the figures of a part, and rewrites the page."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures[name] = part | {"date": datetime.date.today().isoformat()}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(page(figures))


def is_current():
    """Whether the page matches the stored figures."""
    return not FIGURES.exists() or PAGE.read_text() == page(json.loads(FIGURES.read_text()))


def gaps():
    """Parts without figures, with figures of uncommitted code, or with figures that fall short."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in proofs.PARTS:
        command = f"run scripts/prove --only {name} --write"
        if name not in figures:
            yield f"docs/evidence.md has no figures of {name}: {command}"
            continue
        if "changes" in figures[name]["commit"]:
            yield f"docs/evidence.md has figures of {name} from uncommitted code: {command}"
        for row in figures[name]["rows"]:
            if not row["holds"]:
                yield f"docs/evidence.md: {row['promise']}: {command}"


def outdated(known):
    """Figures of earlier code: the page names other faults, guards, branches, suites or fuzz
    targets than there are now. `known` has the names that the simulation lists."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in figures:
        for what, stored, expected in comparisons(name, figures[name], known):
            for verb, names in (("does not have", expected - stored), ("still has", stored - expected)):
                if names:
                    yield (f"docs/evidence.md {verb} these {what}: {'; '.join(sorted(names))}: "
                           f"run scripts/prove --only {name} --write")


def comparisons(name, part, known):
    """What the figures of a part are about: names in the stored figures, and names in the code."""
    def rows(title):
        return {row[0] for row in part["tables"].get(title, {"rows": []})["rows"]}

    if name == "simulation":
        for title, kind in proofs.COUNTED.items():
            yield kind, rows(title), set(known[kind])
    if name == "guards":
        yield "guards", rows("Removed guards"), set(known["guards"])
    if name == "suites":
        yield ("suites", {f"{row['promise']} ({row['by']})" for row in part["rows"]},
               {f"{promise} ({proofs.files(names)})" for promise, names in proofs.SUITES})
    if name == "fuzz":
        yield "fuzz targets", rows("Fuzzing"), set(proofs.fuzz_targets())


def page(figures):
    lines = ["# Evidence", "",
             "The promises of Everfresh, how each is shown, and the latest figures. `scripts/prove --write` writes",
             "this page; each command also runs by itself.", "",
             "| Promise | Shown by | Figures | Command | Commit |", "|---|---|---|---|---|"]
    parts = [figures[name] for name in proofs.PARTS if name in figures]
    for part in parts:
        for row in part["rows"]:
            figure = row["figure"] if row["holds"] else f"**falls short**: {row['figure']}"
            lines.append(f"| {row['promise']} | {row['by']} | {figure} | `{row['command']}` | {part['commit']} |")
    lines += [f"| | | **not shown yet** | `scripts/prove --only {name} --write` | |" for name in proofs.PARTS if name not in figures]
    for part in parts:
        for title, table in part["tables"].items():
            heads, rows = table["heads"], table["rows"]
            lines += ["", f"## {title}", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
            lines += ["| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) + " |" for row in rows]
    lines += ["", "## When", "", "| Part | Date | Took |", "|---|---|---|"]
    lines += [f"| {name} | {figures[name]['date']} | {figures[name]['seconds']:,} s |" for name in proofs.PARTS if name in figures]
    return "\n".join(lines) + "\n"
