"""The checks of scripts/shared-cache: client → cache → recorder → everfresh dev → origin, all on
loopback."""
import http.client, json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import personal_answers

TENANT = """
[tenant.{name}]
hosts = ["{name}.example"]
render = {{ http = "http://127.0.0.1:{origin}" }}
route = [
    {{ path = "/{{cache}}/hosts", revalidate = "1h" }},
    {{ path = "/{{cache}}/life", revalidate = "20s" }},
    {{ path = "/{{cache}}/outlast", revalidate = "10s" }},
    {{ path = "/{{cache}}/brief", revalidate = "10s", max_stale = "5s" }},
    {{ path = "/{{cache}}/careless/{{id}}", revalidate = "1h" }},
]
"""
LIFETIME = 18  # the minimum for 20 s: lifetimes have a jitter of a tenth
MAX_STALE_WHILE_REVALIDATE = 60
CACHES = {
    "nginx": ("nginx.conf", "nginx -p {dir} -c {dir}/nginx.conf -e stderr"),
    "varnish": ("everfresh.vcl", "varnishd -F -n {dir}/varnish -a 127.0.0.1:{port} -f {dir}/everfresh.vcl -s malloc,16m -T none"),
}
# What an origin says of an answer that repeats the visitor's request.
CARELESS = [
    {}, {"cache-control": "public, max-age=600"}, {"cache-control": "s-maxage=600"}, {"cache-control": "private"},
    {"cache-control": "no-store"}, {"cache-control": "no-cache"}, {"cdn-cache-control": "max-age=600"},
    {"surrogate-control": "max-age=600"}, {"vary": "cookie"}, {"vary": "cookie", "cache-control": "public, max-age=600"},
    {"set-cookie": "session=1"}, {"set-cookie": "session=1", "cache-control": "public, s-maxage=600"},
    {"etag": '"same"', "cache-control": "private, max-age=600"}, {"expires": "Thu, 01 Jan 2099 00:00:00 GMT", "vary": "authorization"},
]
processes, checks, now = [], [], time.monotonic


class Response:
    """The response to a GET; status 0 stands for no response."""

    def __init__(self, port, path, headers, time_out=10):
        sent, connection = now(), http.client.HTTPConnection("127.0.0.1", port, timeout=time_out)
        try:
            connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            self.status, self.body = response.status, response.read().decode()
            self.headers = {name.lower(): value for name, value in response.getheaders()}
        except (OSError, http.client.HTTPException):
            self.status, self.body, self.headers = 0, "", {}
        connection.close()
        self.at, self.took = now(), now() - sent
        shared = re.search(r"s-maxage=(\d+)", self.headers.get("cache-control", ""))
        self.s_maxage = int(shared[1]) if shared else -1
        self.word = self.body.removesuffix("</body></html>").split(" ")[-1] if self.status == 200 else ""

    def __str__(self):
        return f"{self.status} {self.word} after {self.took:.1f} s"


class Handler(BaseHTTPRequestHandler):
    @classmethod
    def listen(cls, **attributes):
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (cls,), attributes))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())


class Origin(Handler):
    """Renders the host, the path, and a word that can be changed."""

    words = {}

    def do_GET(self):
        if "/careless/" in self.path:
            said = CARELESS[int(re.search(r"careless/(\d+)", self.path)[1])]
            body = f"<!doctype html>{self.path} {self.headers}"
            return self.answer(200, {"content-type": "text/html", "content-length": len(body)} | said, body)
        words = f"{self.headers['x-forwarded-host']} {self.path} {Origin.words.get(self.path, 'first')}"
        body = f"<!doctype html><html><body>{words}</body></html>"
        self.answer(200, {"content-type": "text/html", "content-length": len(body)}, body)


class Recorder(Handler):
    """Forwards requests to Everfresh unchanged, and records its responses."""

    everfresh, gateway = 0, False

    def do_GET(self):
        answer = Response(Recorder.everfresh, self.path, [pair for pair in self.headers.items() if pair[0].lower() != "connection"], 90)
        if answer.status:
            answer.page, answer.condition = (self.path, self.headers["host"]), self.headers["if-none-match"]
            self.seen.append(answer)
            self.answer(answer.status, answer.headers, answer.body)
        elif Recorder.gateway:
            self.answer(503, {"cache-control": "no-store", "content-length": 4}, "down")
        # Else no response, as if Everfresh were down.


def poll(seconds, probe):
    """Calls `probe` until it returns a true value or the time is up, and returns its last value."""
    end = now() + seconds
    while not (result := probe()) and now() < end:
        time.sleep(0.2)
    return result


def record(check):
    checks.append(check)
    if "--json" not in sys.argv:
        print("{} {cache:12} {check}: expected {expected}; seen {seen}".format("ok  " if check["ok"] else "FAIL", **check), flush=True)


class Cache:
    def __init__(self, name, work):
        self.name, self.seen, self.dir = name, [], work / name
        self.dir.mkdir(mode=0o711)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        file, command = CACHES[name]
        text = pathlib.Path(__file__).with_name(file).read_text().replace("@CACHE@", str(self.port))
        (self.dir / file).write_text(text.replace("@EVERFRESH@", str(Recorder.listen(seen=self.seen))))
        start(command.format(dir=self.dir, port=self.port).split(), work / f"{name}.log")

    def get(self, page, host="one.example", port=None):
        return Response(port or self.port, f"/{self.name}/{page}", [("Host", host)])

    def fetched(self, page, host="one.example"):
        """Everfresh's responses to the requests of the cache."""
        return [answer for answer in self.seen if answer.page == (f"/{self.name}/{page}", host)]

    def fill(self, page, host="one.example"):
        """Renders the page, past the cache, and then has the cache store it."""
        poll(60, lambda: self.get(page, host, Recorder.everfresh).s_maxage > 4 and self.get(page, host).s_maxage > 1)

    def stale_for(self, page):
        """For how many seconds the stored response has been stale, by its s-maxage."""
        stored = self.fetched(page)[-1]
        return now() - stored.at - stored.s_maxage

    def check(self, what, expected, seen, ok):
        record({"cache": self.name, "check": what, "expected": expected, "seen": str(seen), "ok": ok})

    def hosts(self):
        hosts, unknown = ("one.example", "two.example"), "other.example"
        for host in hosts:
            self.fill("hosts", host)
        count = len(self.seen)
        got = [(host, self.get("hosts", host)) for host in hosts * 3]
        mixed, fetched = sum(f"{host} /{self.name}/hosts" not in answer.body for host, answer in got), len(self.seen) - count
        self.check("3 requests for one path on each of two hosts", "each host's own page from the cache",
                   f"{mixed} of the other host, {fetched} fetched from Everfresh", mixed == fetched == 0)
        ours, theirs = [{name: headers.get(name) for name in ("cdn-cache-control", "cache-status")}
                        for headers in (self.fetched("hosts")[-1].headers, got[0][1].headers)]
        self.check("headers of a cached response", "Everfresh's own", theirs, None not in ours.values() and ours == theirs)
        got = [(answer.status, answer.headers.get("cache-control")) for answer in (self.get("hosts", unknown), self.get("hosts", unknown))]
        fetched = len(self.fetched("hosts", unknown))
        self.check("2 requests for an unknown host", "421, no-store, 2 fetched", f"{got}, {fetched} fetched",
                   got == [(421, "no-store")] * 2 and fetched == 2)

    def lifetime(self):
        path, got = f"/{self.name}/life", []
        poll(60, lambda: 0 <= self.get("life", port=Recorder.everfresh).s_maxage <= 7)
        got.append(self.get("life"))
        Origin.words[path] = "second"
        poll(60, lambda: got.append(self.get("life")) or len(self.fetched("life")) > 1)
        first, again = self.fetched("life")[:2]
        held = again.at - first.at
        self.check(f"{len(got) - 1} requests for a page with {first.s_maxage} of {LIFETIME} s left", f"revalidated after about {first.s_maxage} s",
                   f"after {held:.1f} s", 0 < first.s_maxage <= 7 and first.s_maxage - 0.5 < held < first.s_maxage + 6 and len(got) > 5)
        self.check("revalidation", "If-None-Match and 304; clients get 200 first", f"{again.condition} and {again.status}; {got[-1]}",
                   bool(again.condition) and again.status == 304 and all(answer.word == "first" for answer in got))
        poll(LIFETIME - 3, lambda: got.append(self.get("life")) or got[-1].word == "second")
        fetched = self.fetched("life")
        i = next((i for i, answer in enumerate(fetched) if "stale" in answer.headers["cache-status"]), 0)
        stale, gap = fetched[i], fetched[i:i + 2][-1].at - fetched[i].at
        self.check("a stale response", f"s-maxage 2, revalidated in 2 to 3 s; clients get 200 second long before {LIFETIME} s more",
                   f"s-maxage {stale.s_maxage}, after {gap:.1f} s; {got[-1]}",
                   stale.s_maxage == 2 and 1.5 < gap < 10 and got[-1].word == "second")
        zero, aged = sum(answer.s_maxage == 0 for answer in self.seen), sum("age" in answer.headers for answer in self.seen)
        self.check(f"{len(self.seen)} responses of Everfresh", "0 with s-maxage 0, which no cache would store", zero, zero == 0)
        self.check(f"{len(self.seen)} responses of Everfresh", "0 with Age", aged, aged == 0)

    def careless(self):
        """Visitors of pages whose origin repeats what they sent, and often calls that cacheable."""
        visitors, got = ("ann", "bob", None), []
        for _ in range(3):
            for number in range(len(CARELESS)):
                for visitor in visitors:
                    own = [("Cookie", f"session=of-{visitor}"), ("Authorization", f"Basic of-{visitor}"), ("User-Agent", f"of-{visitor}")]
                    for headers in ([own[0], own[2]], own[1:], own) if visitor else ([],):
                        query = f"?token=of-{visitor}" if len(headers) == 3 else ""
                        path = f"/{self.name}/careless/{number}{query}"
                        got.append((visitor, Response(self.port, path, [("Host", "one.example"), *headers])))
        foreign = [(visitor, str(answer)) for visitor, answer in got
                   for other in visitors if other and other != visitor and f"of-{other}" in f"{answer.headers}{answer.body}"]
        lost = sum(answer.status != 200 for _, answer in got)
        self.check(f"{len(got)} requests of three visitors to an origin that repeats them", "200, and nothing of another visitor",
                   f"{lost} without 200, {len(foreign)} with something of another", not foreign and not lost)

    def steady(self):
        try:
            poll(30, lambda: self.get("up").status)  # it has started
            self.careless()
            self.fill("outlast")
            self.fill("brief")
            self.hosts()
            self.lifetime()
        except Exception as error:  # a thread would swallow it
            self.check("these checks", "no exception", repr(error), False)

    def serves_stale(self, when):
        got = []
        poll(60, lambda: got.append(self.get("outlast")) or len(got) == 5)
        good = sum(answer.word == "first" and answer.took < 5 for answer in got)
        self.check(f"{when}, page stale for {self.stale_for('outlast'):.0f} s", "5 requests get 200 first at once",
                   f"{good} do, the last {got[-1]}", good == 5)


def outage(dev, process, caches):
    """Everfresh hangs, is killed, and is started again."""
    process.send_signal(signal.SIGSTOP)
    for cache in caches:
        cache.serves_stale("Everfresh hangs")
    process.kill()
    process.wait()
    for cache in caches:
        cache.serves_stale("Everfresh is down")
    for cache in caches:
        poll(90, lambda: cache.stale_for("outlast") > MAX_STALE_WHILE_REVALIDATE + 2)
        cache.serves_stale("Everfresh is down")
        got = cache.get("brief")
        cache.check(f"the same with max_stale = 5s, stale for {cache.stale_for('brief'):.0f} s", "an error", got.status, got.status >= 500)
    Recorder.gateway = True
    for cache in caches:
        cache.serves_stale("a gateway responds 503")
        Origin.words[f"/{cache.name}/outlast"] = "second"
    dev()
    for cache in caches:
        got = []
        poll(30, lambda: got.append(cache.get("outlast")) or got[-1].word == "second")
        cache.check("Everfresh is up again", "200 second", got[-1], got[-1].word == "second")


def start(command, log, out=subprocess.DEVNULL, environment={}):
    processes.append(subprocess.Popen(command, stdout=out, stderr=open(log, "ab"), env=os.environ | environment))
    return processes[-1]


def main(binary, work):
    def run_dev(name, environment={}):
        command = [binary, "dev", "--json", "--port", "0", "--data", work / name, "--config", work / f"{name}.toml"]
        process = start(command, work / f"{name}.log", subprocess.PIPE, environment)
        return process, int(json.loads(process.stdout.readline())["pages"].rpartition(":")[2])

    def dev():
        process, Recorder.everfresh = run_dev("everfresh")
        return process

    def visitors():
        """With an Everfresh of its own: the requests that it leaves would delay the renders that
        others wait for."""
        origin = personal_answers.listen()
        (work / "visited.toml").write_text(personal_answers.tenant(origin))
        process, port = run_dev("visited", {"EVERFRESH_ENQUEUES_PER_MINUTE": "10000"})
        for check in personal_answers.checks(port, origin, work, start):
            record(check)
        process.terminate()

    passed = False
    try:
        visitors()
        origin = Origin.listen()
        (work / "everfresh.toml").write_text("".join(TENANT.format(name=name, origin=origin) for name in ("one", "two")))
        process = dev()
        caches = [Cache(name, work) for name in CACHES]
        threads = [threading.Thread(target=cache.steady, daemon=True) for cache in caches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outage(dev, process, caches)
        passed = all(check["ok"] for check in checks)
        print(json.dumps(checks, indent=2) if "--json" in sys.argv else f"{sum(c['ok'] for c in checks)} of {len(checks)} checks passed")
    finally:
        for process in processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)
        for process in processes:
            process.wait()
        for log in [] if passed else work.glob("**/*.log"):
            print(f"\n{log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
        shutil.rmtree(work)
    return 0 if passed else 1


for ending in signal.SIGTERM, signal.SIGHUP:
    signal.signal(ending, lambda *_: sys.exit(1))
folder = pathlib.Path(tempfile.mkdtemp())
folder.chmod(0o711)  # daemons started by root drop their privileges
sys.exit(main(sys.argv[1], folder))
