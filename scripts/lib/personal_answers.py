"""The part of scripts/shared-cache on visitors: generated answers of an origin, several visitors at
once, and four shared caches, two of which leave it to Everfresh's headers whom an answer is for.

Every answer of the origin has a number. One that two requests got is a shared one: then it was made
for no visitor, and the origin has not called it personal."""

import collections, concurrent.futures, http.client, pathlib, random, socket, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "visitors.example"
TENANT = """
[tenant.visitors]
hosts = ["{host}"]
render = {{ http = "http://127.0.0.1:{origin}" }}
route = [
    {{ path = "/{{cache}}/short/{{id}}", revalidate = "2s" }},
    {{ path = "/{{cache}}/long/{{id}}", revalidate = "1h" }},
]
"""
CACHES = {
    "nginx": "nginx.conf", "varnish": "everfresh.vcl", "bare nginx": "bare-nginx.conf", "bare varnish": "bare.vcl",
}  # fmt: skip
SEED, PAGES, REQUESTS, AT_ONCE = 15, 48, 40, 8
VISITORS = ("ann", "bob", "cleo", "dan", None)

STATUSES = [200] * 30 + [203, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 410, 418, 429, 451, 500, 503]
CACHE_CONTROL = [
    None, None, None, "public, max-age=600", "public, s-maxage=600", "public, s-maxage=60", "max-age=600", "s-maxage=600, stale-while-revalidate=60", "private",
    "private, max-age=600", "no-store", "no-cache", "max-age=0", "no-cache, s-maxage=600", "must-revalidate, max-age=600",
]  # fmt: skip
TARGETED = [None] * 6 + ["max-age=600", "private", "no-store", "max-age=0"]
VARY = [None] * 14 + ["Cookie", "Authorization", "User-Agent", "Accept-Encoding", "*", "Cookie, Accept-Language"]
COOKIES = [None] * 7 + ["session={visitor}; Path=/", "seen={number}; HttpOnly", "session={visitor}; Max-Age=0"]
# Said by the answer itself, whatever else it says: it is for one visitor.
PERSONAL = ("private", "no-store")


def profile(draw):
    """What an origin's answers to one page look like."""
    return {
        "status": draw.choice(STATUSES), "cache-control": draw.choice(CACHE_CONTROL), "cdn-cache-control": draw.choice(TARGETED),
        "vary": draw.choice(VARY), "set-cookie": draw.choice(COOKIES), "etag": draw.choice([None, '"same"', '"of-{visitor}"']),
        "location": draw.choice([f"/elsewhere/{draw.randrange(9)}", "/account/of-{visitor}"]),
    }  # fmt: skip


class Origin(BaseHTTPRequestHandler):
    """Answers each page by its profile, and repeats what it knows of the visitor."""

    protocol_version = "HTTP/1.1"
    answers, lock, profiles = {}, threading.Lock(), {}

    def answer(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        known = " ".join(str(self.headers[name]) for name in ("cookie", "authorization", "user-agent") if self.headers[name])
        visitor = next((name for name in VISITORS if name and f"of-{name}" in known), "none")
        said = self.profiles.get(self.path, {"status": 404})
        headers = {name: said[name] for name in said if said[name] and name not in ("status", "location")}
        if 300 <= said["status"] < 400:
            headers["location"] = said["location"]
        declared = f"{headers.get('cache-control')} {headers.get('cdn-cache-control')}"
        # `no-store` for browsers and a lifetime for caches may both be said: then it is shared.
        targeted = headers.get("cdn-cache-control", headers.get("cache-control", ""))
        personal = any(word in targeted for word in PERSONAL) or "set-cookie" in headers or said["status"] in (401, 403, 451)
        personal = personal or any(name in headers.get("vary", "").lower() for name in ("cookie", "authorization", "user-agent", "*"))
        with self.lock:
            number = len(self.answers)
            self.answers[number] = {"for": known if "of-" in known or "anonymous" in known else None, "personal": personal, "said": f"{said['status']} {declared} {headers}"}
        body = f"<!doctype html><p>answer {number} of-{visitor}</p>".encode()
        self.send_response_only(said["status"])
        for name, value in headers.items():
            self.send_header(name, value.format(visitor=f"of-{visitor}", number=f"number-{number}"))
        for name, value in {"content-type": "text/html", "content-length": len(body), "x-number": number}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class Threads(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, *_):
        """Caches and Everfresh close connections as they like."""


def listen():
    server = Threads(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def tenant(origin):
    return TENANT.format(host=HOST, origin=origin)


def start_cache(name, everfresh, work, start):
    folder = work / name.replace(" ", "-")
    folder.mkdir(mode=0o711)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = CACHES[name]
    text = pathlib.Path(__file__).with_name(file).read_text().replace("@CACHE@", str(port)).replace("@EVERFRESH@", str(everfresh))
    (folder / file).write_text(text)
    if file.endswith(".conf"):
        command = ["nginx", "-p", folder, "-c", folder / file, "-e", "stderr"]
    else:
        command = ["varnishd", "-F", "-n", folder / "varnish", "-a", f"127.0.0.1:{port}", "-f", folder / file, "-s", "malloc,16m", "-T", "none"]
    start(command, folder / "errors.log")
    return port


def visit(port, path, method, visitor, draw):
    """One request. Returns status, headers and body; status 0 stands for no response."""
    marks = {"User-Agent": f"of-{visitor}"} if visitor else {"User-Agent": "anonymous"}
    if visitor:
        kinds = [{"Cookie": f"session=of-{visitor}"}, {"Authorization": f"Basic of-{visitor}"}]
        for kind in draw.choice([kinds[:1], kinds[1:], kinds]):
            marks |= kind
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, b"word" if method in ("POST", "PUT") else None, {"Host": HOST, "Accept-Encoding": "identity"} | marks)
        response = connection.getresponse()
        return response.status, str(response.getheaders()), response.read().decode(), response.getheader("x-number")
    except (OSError, http.client.HTTPException):
        return 0, "", "", None
    finally:
        connection.close()


def check(name, port):
    """Returns what is wrong, and the counts of requests, shared answers and statuses."""
    draw = random.Random(f"{SEED} {name}")
    prefix, numbers = name.replace(" ", "-"), range(PAGES)
    paths = [f"/{prefix}/{'short' if number % 2 else 'long'}/{number}" for number in numbers]
    got = collections.defaultdict(list)
    wrong, statuses = [], collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        for half in range(2):
            # What the origin says of a page changes once: from public to personal, and back.
            for path in paths:
                Origin.profiles[path] = profile(draw)
            requests = [(path, draw.choice(["GET"] * 8 + ["HEAD", "POST"]), draw.choice(VISITORS), random.Random(draw.random()))
                        for path in paths for _ in range(REQUESTS // 2)]
            # Those for one page at about the same time, in an order that is the seed's.
            requests = sorted(requests, key=lambda request: (int(request[0].rpartition("/")[2]) // 8, request[3].random()))
            for (path, method, visitor, _), (status, headers, body, number) in zip(
                requests, threads.map(lambda request: visit(port, *request), requests)
            ):
                statuses[status] += 1
                foreign = [other for other in VISITORS if other and other != visitor and f"of-{other}" in headers + body]
                if foreign:
                    wrong.append(f"{method} {path} by {visitor} has something of {foreign}: {headers} {body}")
                if number is not None:
                    got[int(number)].append((method, path, visitor))
    shared = {number: requests for number, requests in got.items() if len(requests) > 1}
    for number, requests in shared.items():
        answer = Origin.answers[number]
        if answer["for"] or answer["personal"]:
            wrong.append(f"answer {number}, made for {answer['for']} and saying {answer['said']}, is shared by {requests}")
    counts = {"requests": sum(statuses.values()), "unanswered": statuses[0], "shared": len(shared),
              "shares": sum(len(requests) for requests in shared.values()), "statuses": len(statuses)}  # fmt: skip
    return wrong, counts


def checks(everfresh, origin, work, start):
    """Checks all four caches in front of Everfresh, and then, to see that the checks notice it, two
    in front of the origin itself. Yields what shared_cache prints."""
    for backend, names in ((everfresh, list(CACHES)), (origin, ["bare nginx", "bare varnish"])):
        folder = work / f"visitors-{backend}"
        folder.mkdir(mode=0o711)
        ports = {name: start_cache(name, backend, folder, start) for name in names}
        for port in ports.values():
            for _ in range(100):
                if visit(port, "/none", "GET", None, random)[0]:
                    break
                time.sleep(0.1)
        with concurrent.futures.ThreadPoolExecutor(len(ports)) as threads:
            for name, (wrong, counts) in zip(names, threads.map(lambda name: check(name, ports[name]), names)):
                yield result(name, wrong, counts) if backend == everfresh else control(name, wrong, counts)


def result(name, wrong, counts):
    seen = (f"{counts['shares']:,} requests got {counts['shared']} shared answers, {counts['unanswered']} got none; "
            + (f"{len(wrong)} wrong, the first: {wrong[0][:600]}" if wrong else "0 wrong"))
    return {"cache": name, "check": f"{counts['requests']:,} generated requests of {len(VISITORS)} visitors, seed {SEED}",
            "expected": "no visitor gets what was made for another", "seen": seen,
            "ok": not wrong and not counts["unanswered"] and counts["shared"] > 5}  # fmt: skip


def control(name, wrong, counts):
    return {"cache": name, "check": f"{counts['requests']:,} of them without Everfresh", "expected": "personal answers are shared",
            "seen": f"{len(wrong)} wrong", "ok": bool(wrong)}  # fmt: skip
