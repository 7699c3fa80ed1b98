"""The Go example against a real `everfresh dev` with faults on the way: see main.py."""

import concurrent.futures
import json
import os
import subprocess
import sys
import urllib.request

WORLD = json.loads(os.environ["EVERFRESH_CLIENTS"])


def control(command, **given):
    request = urllib.request.Request(f"{WORLD['control']}/{command}", json.dumps(given).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def revalidate(path):
    command = [sys.argv[1], WORLD["site"], path]
    done = subprocess.run(command, env=os.environ | {"EVERFRESH_KEY": WORLD["key"]}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # <page hash>.<key>@<milliseconds>
    return {"path": path, "key": done.stdout.strip().split(".", 1)[1].partition("@")[0]}


for kind in ("network", "throttling"):
    control("faults", kind=kind, rate=0.4)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        requests = list(pool.map(revalidate, [f"/go-{kind}/{number}" for number in range(20)]))
    control("faults", kind="keep")
    counted = control("ended", requests=requests)
    print(f"go: {kind}: {json.dumps(counted)}", flush=True)
    for count in ("records", "own records", "completed", "endings", "committed"):
        assert counted[count] == len(requests), f"{count}: {counted}"
