"""The tests of scripts/clients: each client against an `everfresh dev` of its own."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from world import World

ROOT = pathlib.Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "crates/enqueue/schema/message-v1.json").read_text())


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary", type=pathlib.Path, help="everfresh")
    arguments.add_argument("producer", help="the attribute everfresh-producer of the client's messages; - for none")
    arguments.add_argument("command", nargs=argparse.REMAINDER, help="runs the tests")
    options = arguments.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        world = World(options.binary.absolute(), pathlib.Path(folder), SCHEMA)
        try:
            environment = os.environ | {"EVERFRESH_CLIENTS": json.dumps(world.environment())}
            status = subprocess.run(options.command, env=environment, timeout=300).returncode
            if status:
                print((pathlib.Path(folder) / "dev.log").read_text()[-4000:], file=sys.stderr)
                return status
            checked = world.check_messages(options.producer)
        finally:
            world.stop()
    messages = f"{checked} messages valid by the published schema, " if checked else ""
    print(f"{options.producer}: {messages}{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
