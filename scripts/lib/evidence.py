"""The latest figures of each part: stored in docs/evidence.json, and written as a page to docs/evidence.md."""

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
        if name not in figures:
            yield f"docs/evidence.md has no figures of {name}"
            continue
        if "changes" in figures[name]["commit"]:
            yield f"docs/evidence.md has figures of {name} from uncommitted code"
        yield from (f"docs/evidence.md: {row['promise']}" for row in figures[name]["rows"] if not row["holds"])


def page(figures):
    lines = ["# Evidence", "",
             "The promises of Everfresh, how each is shown, and the latest figures. `scripts/prove --write` writes this page; each",
             "command also runs by itself.", "",
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
