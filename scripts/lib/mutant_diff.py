#!/usr/bin/env python3
"""Prints the diff of a mutant: mutant_diff.py mutants.out 'crates/core/src/x.rs:1:2: replace …'"""

import json
import pathlib
import sys

results, name = pathlib.Path(sys.argv[1]), sys.argv[2]
for outcome in json.loads((results / "outcomes.json").read_text())["outcomes"]:
    scenario = outcome["scenario"]
    if isinstance(scenario, dict) and scenario["Mutant"]["name"] == name:
        print((results / outcome["diff_path"]).read_text(), end="")
        break
else:
    sys.exit(f"{results}/outcomes.json has no mutant {name}")
