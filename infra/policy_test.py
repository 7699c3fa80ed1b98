"""What must hold of the templates, whatever a linter says of them.

Each rule is also shown to notice: the templates and the sources are broken in memory, once for every way that is listed with the rule,
and the rule must complain. Prints one line per rule; ends with 1 if a rule is broken, or does not notice that it is.
"""

import copy
import sys

from policy import alarms, cdn, functions, interface, queues, roles, storage  # noqa: F401  they register their rules
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
        state = "BROKEN" if complaints else "BLIND" if unnoticed else "holds"
        print(f"{state:6}  {name} ({len(breaks)} ways to break it)")
        for complaint in complaints:
            print(f"        {complaint}")
        if unnoticed:
            print(f"        does not notice when broken in way {', '.join(unnoticed)}")
    ways = sum(len(breaks) for _, _, breaks in RULES)
    print(
        f"{len(RULES)} rules, broken in {ways} ways on purpose"
        + (": something is wrong" if failed else ", all of which were noticed")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
