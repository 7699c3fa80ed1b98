"""The operator's commands on the deployed stack: `everfresh … --stack NAME`, as one runs them at
night."""

import json
import os
import subprocess
import time

from emulated import REGION, STACK, eventually

BAD_BODY = "this is not a message either"


def everfresh(e, *command, exit_code=0):
    """Runs a command. Returns its JSON, or the list of its lines."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(e.emulator.work / "home"), "AWS_ENDPOINT_URL": e.emulator.endpoint,
        "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }  # fmt: skip
    done = subprocess.run([e.cli, *command, "--stack", STACK, "--json"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == exit_code, f"everfresh {' '.join(command)}: exit code {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return [json.loads(line) for line in done.stdout.splitlines()]


def listed(e, state, prefix):
    """The paths in a state, by `page list`: one page is one document, and several are lines."""
    pages = everfresh(e, "page", "list", "--prefix", prefix, "--state", state)
    return [page["path"] for page in ([pages] if isinstance(pages, dict) else pages)]


def pages_are_operated(e):
    """`page list|show|history|rollback|unpin|invalidate|purge`, `explain`, `lease show` and
    `request list`."""
    path = "/operated/1"
    for word in ("first", "second"):
        e.site.words[path] = word
        everfresh(e, "enqueue", path, "--wait")
        time.sleep(3)  # longer than epsilon, so that the next request is not covered
    shown = everfresh(e, "page", "show", path)
    assert (shown["state"], shown["published"]["version"]) == ("fresh", e.version(path)), shown
    assert everfresh(e, "page", "rollback", "/operated/none", "previous", exit_code=3)["error"]
    assert listed(e, "fresh", "/operated") == [path]
    versions = everfresh(e, "page", "history", path)["versions"]
    assert [version["published"] for version in versions].count(True) == 1 and len(versions) == 2, versions
    explained = everfresh(e, "explain", f"https://demo.example{path}")
    assert explained["tenant"] == "demo" and "fresh for" in explained["answer"], explained
    assert everfresh(e, "lease", "show", path)["held"] is False
    requests = everfresh(e, "request", "list", path)["requests"]
    assert [request["state"] for request in requests] == ["completed"] * 2, requests

    everfresh(e, "page", "rollback", path, "previous", "--dry-run")
    assert "second" in e.get(path).text, "--dry-run published the previous version"
    everfresh(e, "page", "rollback", path, "previous")
    eventually(30, "the previous version is served", lambda: "first" in e.get(path).text)
    assert listed(e, "pinned", "/operated") == [path]
    everfresh(e, "page", "unpin", path)
    eventually(60, "the unpinned page is rendered", lambda: "second" in e.get(path).text)

    before = e.version(path)
    for way in ([path], ["--prefix", "/operated"], ["--tag", "everything"]):
        everfresh(e, "page", "invalidate", *way)
        eventually(30, f"{way} makes the page stale", lambda: "stale" in (e.get(path).getheader("cache-status") or "") or e.version(path) != before)
        before = eventually(60, f"the page is regenerated after {way}", lambda before=before: e.version(path) != before and e.version(path))
        time.sleep(3)

    everfresh(e, "page", "purge", "--prefix", "/operated")
    eventually(30, "the page is gone", lambda: e.get(path).status == 410)
    assert listed(e, "purged", "/operated") == [path]
    everfresh(e, "page", "unpin", path)
    eventually(60, "the page is back", lambda: e.get(path).status == 200)
    return "listed, shown, explained, rolled back, unpinned, invalidated by path, prefix and tag, purged, and back again"


def requests_are_operated(e):
    """`pause`, `resume`, `dlq list|show|redrive|drop`, `sweep --dry-run` and `status`."""
    path, paused = "/operated/dead", "/operated/paused"
    eventually(60, "the queues are empty", lambda: e.waiting() == 0)
    everfresh(e, "pause")
    time.sleep(11)  # a worker reads this every ten seconds
    request = everfresh(e, "enqueue", paused)
    time.sleep(5)
    assert not e.version(paused) and e.waiting() == 1, "a paused stack renders"
    assert everfresh(e, "request", "show", request["handle"])["state"] != "completed"
    everfresh(e, "resume")
    eventually(120, "the request that waited is completed", lambda: e.version(paused))

    e.site.statuses[path] = 500
    message_id = everfresh(e, "enqueue", path)["message_id"]
    [dead] = eventually(120, "the message is listed", lambda: [letter for letter in letters(e) if letter["path"] == path])
    assert dead["reason"] == "attempts", dead
    e.site.statuses.pop(path)
    assert len(everfresh(e, "dlq", "redrive", "--path", path, "--dry-run")["redriven"]) == 1
    redriven = everfresh(e, "dlq", "redrive", "--path", path)
    assert (len(redriven["redriven"]), redriven["failed"]) == (1, []), redriven
    eventually(120, "the redriven message is published", lambda: e.version(path))
    assert e.row(path, f"REQ#{message_id}")["status"] == "COMPLETED", "another key than before"
    eventually(60, "the message is no longer listed", lambda: all(letter["path"] != path for letter in letters(e)))

    e.send(BAD_BODY)
    [bad] = eventually(60, "the bad message is listed", lambda: [letter for letter in letters(e) if letter["reason"] == "bad_message"])
    everfresh(e, "dlq", "show", bad["id"])
    everfresh(e, "dlq", "drop", bad["id"], "--yes")
    eventually(60, "the bad message is dropped", lambda: all(letter["id"] != bad["id"] for letter in letters(e)))

    swept = everfresh(e, "sweep", "--dry-run")
    assert swept["dry_run"] and swept["pages"] > 10 and (swept["objects"], swept["expired"]) == (0, 0), swept
    return f"pause and resume; dead letters listed, redriven under their key and dropped; a sweep judged {swept['pages']} pages"


def letters(e):
    return everfresh(e, "dlq", "list")["messages"]
