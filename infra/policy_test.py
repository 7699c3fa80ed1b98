"""Checks the templates against rules that a linter does not know.

Each rule is tested itself: every mutation listed with it is applied to the templates or sources in
memory, and the rule must complain. Prints one line per rule. Exits with 1 if a rule is violated, or
does not detect one of its mutations.
"""

import copy
import sys

# Imported to register their rules.
from policy import alarms, behaviours, cdn, functions, interface, passes, queues, roles, storage  # noqa: F401
from policy.rule import RULES, Stack


def main():
    intact, failed = Stack(), False
    for name, check, breaks in RULES:
        complaints = list(dict.fromkeys(check(intact)))
        unnoticed = []
        for number, break_it in enumerate(breaks, 1):
            broken = copy.deepcopy(intact)
            break_it(broken)
            if not any(complaint not in complaints for complaint in check(broken)):
                unnoticed.append(str(number))
        failed = failed or bool(complaints or unnoticed)
        state = "BROKEN" if complaints else "MISSED" if unnoticed else "holds"
        print(f"{state:6}  {name} ({len(breaks)} ways to break it)")
        for complaint in complaints:
            print(f"        {complaint}")
        if unnoticed:
            print(f"        does not detect its mutation {', '.join(unnoticed)}")
    ways = sum(len(breaks) for _, _, breaks in RULES)
    print(
        f"{len(RULES)} rules, broken in {ways} ways on purpose"
        + (": something is wrong" if failed else ", all of which were noticed")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
