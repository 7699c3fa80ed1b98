"""Rules for requests that cannot be pages: where the distribution sends them, and with what."""

import copy
import itertools
import re

from edge import SIGNATURE, Edge, Request
from policy.rule import ALL_ON, PROPERTIES, RESOURCES, drop, edit, put, rule
from reading import ROOT

APP = "cdn Resources Distribution Properties DistributionConfig Origins 1 Fn::If 1"
CONFIG = "cdn Resources Distribution Properties DistributionConfig"
PAGE_CODE, APP_CODE = (f"cdn Resources {name} Properties FunctionCode Fn::Sub" for name in ("PageRequest", "AppRequest"))
PAGE_KEY = "cdn Resources PageCachePolicy Properties CachePolicyConfig ParametersInCacheKeyAndForwardedToOrigin"
ALL_VIEWER = "216adef6-5c7f-47e4-b989-5492eafa07d3"

SITE = {"AppOrigin": "app.example.net:8443", "AppOriginHeader": "x-from-cdn:0123456789abcdef", "PreviewKeys": ALL_ON["PreviewKeys"]}
PATHS = {"PassPaths": "/api/*,/_next/image", "AssetPaths": "/_next/static/*,/img/*.png"}
# What one visitor sends, and another does not.
PERSONAL = {"user-agent": "Browser", "accept-language": "de", "referer": "https://www.example.com/", "x-csrftoken": "token"}
# Of the source file, so that a name missing in a template is found.
NEVER_FORWARDED = re.search(r"NEVER_FORWARDED = .*\)\((.*)\)\$/", (ROOT / "infra" / "viewer-page.js").read_text())[1].split("|")
FORGED = {
    name: "forged"
    for name in (
        "x-everfresh-host x-everfresh-pass x-everfresh-preview x-everfresh-signature x-amz-date x-amz-content-sha256 "
        "x-forwarded-for x-forwarded-host x-forwarded-proto x-original-url x-rewrite-url x-middleware-subrequest "
        "x_forwarded_host x-from-cdn"
    ).split()
} | {name.replace(".*", "forged"): "forged" for name in NEVER_FORWARDED}
VALIDATORS = {"if-none-match": '"etag of the page"', "range": "bytes=0-99"}


def visitor(name, path="/", method="GET", **headers):
    """A request with a session, and with everything that a client may forge."""
    given = {key.replace("_", "-"): value for key, value in headers.items()} | PERSONAL | FORGED
    return Request(method, path, headers=given | {"user-agent": name}, cookies={"session": name}, ip=f"203.0.113.{len(name)}")


def forged(outcome):
    return sorted(name for name, value in outcome.headers.items() if "forged" in value)


@rule(
    "pages are cached for all visitors; a passed request reaches the app, and its response no other visitor",
    edit(PAGE_CODE, "event.context.requestId", "'1'"),
    edit(PAGE_CODE, "!headers.authorization", "true"),
    edit(PAGE_CODE, "!PASS_WHEN.some((name) => headers[name])", "true"),
    edit(PAGE_CODE, "cf.selectRequestOriginById('app', {", "cf.selectRequestOriginById('serve', {"),
    edit(PAGE_CODE, "if (reads && !headers.authorization", "if (request.method !== 'DELETE' && !headers.authorization"),
    edit(PAGE_CODE, "headers['x-everfresh-pass'] = {", "headers['x-everfresh-other'] = {"),
    edit(PAGE_CODE, "    if (signed) return request;\n", "    headers['x-everfresh-pass'] = { value: event.context.requestId };\n"),
    put(f"{PAGE_KEY} HeadersConfig Headers", ["x-everfresh-host"]),
    put(f"{PAGE_KEY} HeadersConfig Headers", ["x-everfresh-host", "x-everfresh-pass"]),
    put(f"{PAGE_KEY} HeadersConfig Headers", ["x-everfresh-host", "x-everfresh-pass", "authorization", "user-agent"]),
    put(f"{PAGE_KEY} CookiesConfig", {"CookieBehavior": "all"}),
    drop(f"{CONFIG} DefaultCacheBehavior OriginRequestPolicyId"),
    put(f"{CONFIG} DefaultCacheBehavior OriginRequestPolicyId", ALL_VIEWER),
    put(f"{CONFIG} DefaultCacheBehavior TargetOriginId", "app"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters PassWhen", ""),
    put("main Parameters PassWhen Default", "rsc"),
)
def passed(stack):
    edge = Edge(stack.site(**SITE, **PATHS))
    passes = {"authorization": "Basic x"} | {name: "1" for name in NEXT_HEADERS}
    one, two = edge.send(visitor("one"), visitor("another"))
    if (one.origin, two.origin) != ("serve", "serve") or one.key is None or one.key != two.key:
        yield "a page is not cached for all visitors"
    for page, name in ((one, "one"), (two, "another")):
        if page.cookies != {"session": name} or not PERSONAL.keys() <= page.headers.keys():
            yield "the serving function lacks cookies or headers of a request that it may have to pass"
        if page.headers["host"] == "www.example.com" or page.headers.get("x-everfresh-host") != "www.example.com":
            yield "the function URL does not receive its own host, or the serving function not the site's"
        if "x-everfresh-pass" in page.headers or page.headers["authorization"] != SIGNATURE:
            yield "a page request is marked as passed, or not signed"
    outcomes = edge.send(*(visitor(name, **{header: value}) for header, value in passes.items() for name in ("one", "another")))
    headers = [header for header in passes for _ in range(2)]
    for header, outcome in zip(headers, outcomes):
        if outcome.origin != "app" or outcome.headers.get(header) != passes[header] or "session" not in outcome.cookies:
            yield f"{header}: does not reach the app, or not with its headers and cookies"
    keys = [outcome.key for outcome in [one, *outcomes]]
    if any(left == right for left, right in itertools.combinations(keys, 2)):
        yield "two passed requests, or one and a page, share a cache key"
    methods = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    for method, outcome in zip(methods, edge.send(*(visitor("one", method=method) for method in methods))):
        if (outcome.origin, outcome.key) != ("app", None):
            yield f"{method} does not reach the app"


# What Next.js sends with client navigation, prefetches and server actions.
NEXT_HEADERS = (
    "rsc", "next-router-state-tree", "next-router-prefetch", "next-router-segment-prefetch", "next-url", "next-action", "origin",
)  # fmt: skip


@rule(
    "a visitor can log in through the distribution",
    edit(PAGE_CODE, "if (!reads && !HAS_APP) return notAllowed();", "if (!reads) return notAllowed();"),
    put(f"{CONFIG} DefaultCacheBehavior AllowedMethods", ["GET", "HEAD"]),
    put(f"{CONFIG} CacheBehaviors 1 Fn::If 1 AllowedMethods", ["GET", "HEAD"]),
    put(f"{CONFIG} CacheBehaviors 1 Fn::If 1 CachePolicyId", {"Ref": "AssetCachePolicy"}),
    put(f"{CONFIG} CacheBehaviors 2 Fn::If 1 OriginRequestPolicyId", {"Ref": "AssetRequestPolicy"}),
    put(f"{CONFIG} CacheBehaviors 2 Fn::If 1 TargetOriginId", "serve"),
    put(f"{CONFIG} DefaultCacheBehavior OriginRequestPolicyId", {"Ref": "AssetRequestPolicy"}),
    put(f"{CONFIG} DefaultCacheBehavior ResponseHeadersPolicyId", {"Ref": "WithoutCookies"}),
    edit(PAGE_CODE, "{ hostHeader: host.split(':')[0] }", "{}"),
    edit(PAGE_CODE, "        headers['x-forwarded-host'] = { value: host };\n", ""),
    edit(APP_CODE, "headers['x-forwarded-host'] = { value: headers.host.value };", ""),
    drop(f"{APP} OriginCustomHeaders 0"),
    drop(f"{APP} OriginCustomHeaders 1"),
    put(f"{APP} OriginCustomHeaders 1 Fn::If 1 HeaderValue", "x"),
    put(f"{APP} DomainName", {"Ref": "AppOrigin"}),
    put(f"{APP} CustomOriginConfig HTTPSPort", 443),
    put("cdn Conditions AppReceivesSiteHost", {"Fn::Equals": [{"Ref": "AppOriginHost"}, "origin"]}),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters AppOrigin", ""),
    drop(f"{RESOURCES} Cdn {PROPERTIES} Parameters AppOriginHeader"),
    drop(f"{RESOURCES} Cdn {PROPERTIES} Parameters PassPath1"),
)
def login(stack):
    for sends, host in (("site", "www.example.com"), ("origin", "app.example.net")):
        edge = Edge(stack.site(**SITE, **PATHS, AppOriginHost=sends))
        form = visitor("one", "/login", "POST", content_type="application/x-www-form-urlencoded", origin="https://www.example.com")
        form.cookies = {"csrftoken": "token"}
        signed_in, account, image = visitor("one", "/account"), visitor("one", "/api/account"), visitor("one", "/_next/image")
        upload = visitor("one", "/api/account", "PUT", authorization="Bearer x")
        [posted, page, *app_paths] = edge.send(form, signed_in, account, image, upload)
        for outcome in (posted, *app_paths):
            expected = {
                "host": host, "x-forwarded-host": "www.example.com", "x-forwarded-proto": "https",
                "x-from-cdn": "0123456789abcdef", "x-csrftoken": "token", "referer": "https://www.example.com/",
            }  # fmt: skip
            missing = [name for name, value in expected.items() if outcome.headers.get(name) != value]
            if outcome.origin != "app" or missing:
                yield f"host {sends}: the app is not reached, or lacks {', '.join(missing)}"
            if outcome.key is not None or "Set-Cookie" in outcome.removed:
                yield f"host {sends}: a response of the app is cached, or loses its cookies"
        if posted.cookies != form.cookies or not {"origin", "content-type"} <= posted.headers.keys():
            yield f"host {sends}: the form reaches the app without its cookie or headers"
        if any(outcome.cookies != {"session": "one"} for outcome in app_paths) or app_paths[-1].headers.get("authorization") != "Bearer x":
            yield f"host {sends}: the app does not recognise a visitor"
        # The serving function passes it, and its response is private and no-store.
        if (page.origin, page.cookies) != ("serve", {"session": "one"}) or "Set-Cookie" in page.removed:
            yield f"host {sends}: the serving function cannot pass a visitor's cookies, or the response loses them"
        app = edge.origins.get("app", {})
        if (app.get("DomainName"), app.get("CustomOriginConfig", {}).get("HTTPSPort")) != ("app.example.net", "8443"):
            yield f"host {sends}: the app is looked for at another address"
    for given, port in (("app.example.net", "443"), ("app.example.net:8443", "8443")):
        app = Edge(stack.site(AppOrigin=given)).origins.get("app", {})
        if app.get("CustomOriginConfig", {}).get("HTTPSPort") != port or len(app.get("OriginCustomHeaders", [])) != 1:
            yield f"AppOrigin {given} does not give port {port} and a single header"


@rule(
    "no client forges what Everfresh, CloudFront or the app trusts",
    *[
        edit(code, "|".join(NEVER_FORWARDED), "|".join(other for other in NEVER_FORWARDED if other != name))
        for code in (PAGE_CODE, APP_CODE)
        for name in NEVER_FORWARDED
        if name != "x-real-ip"  # CloudFront hides it from functions.
    ],
    edit(PAGE_CODE, ".replace(/_/g, '-')", ""),
    edit(APP_CODE, ".replace(/_/g, '-')", ""),
    edit(PAGE_CODE, "    headers['x-everfresh-host'] = { value: host };\n", ""),
    edit(PAGE_CODE, "if (reads) CONDITIONAL", "if (!reads) CONDITIONAL"),
    edit(PAGE_CODE, "delete request.cookies[PREVIEW_COOKIE];", ""),
    edit(APP_CODE, "delete request.cookies[PREVIEW_COOKIE];", ""),
    edit(PAGE_CODE, "x-everfresh-(key-id|", "x-everfresh-(key-id|preview|"),
    edit(PAGE_CODE, "&& !/%|\\/\\.|\\/\\/|\\\\/.test(uri)", ""),
    drop(f"{CONFIG} CacheBehaviors 1 Fn::If 1 FunctionAssociations 0"),
)
def forgeries(stack):
    edge = Edge(stack.site(**SITE, **PATHS))
    if any(not behaviour["FunctionAssociations"] for behaviour in edge.config["CacheBehaviors"]):
        yield "a behaviour calls no function"
        return
    paths = ("/", "/api/x", "/_next/static/x.js", "/_everfresh/../x", "/_everfresh/%2e%2e/x")
    requests = [visitor("one", path, method) for path in paths for method in ("GET", "POST", "HEAD")]
    requests += [visitor("one", rsc="1"), visitor("one", authorization="Basic x")]
    for request, outcome in zip(requests, edge.send(*requests)):
        # The serving function does not look at the app's secret.
        found = [name for name in forged(outcome) if (name, outcome.origin) != ("x-from-cdn", "serve")]
        if found:
            yield f"{request.method} {request.path}: {', '.join(found)} forwarded"
    signed = visitor("one", "/_everfresh/revalidate", "POST", x_everfresh_nonce="n", x_request_id="r")
    [outcome] = edge.send(signed)
    if forged(outcome) != ["x-amz-content-sha256", "x-everfresh-signature", "x-from-cdn"] or outcome.key is not None or outcome.origin != "serve":
        yield f"a signed request is forwarded with {forged(outcome)}"
    if any(name not in outcome.headers for name in ("x-everfresh-nonce", "x-request-id")) or outcome.cookies:
        yield "a signed request does not reach the serving function whole, or with cookies"
    if outcome.headers.get("x-everfresh-host") != "www.example.com":
        yield "a signed request has no host"
    conditional = [copy.deepcopy(request) for request in (visitor("one", rsc="1"), visitor("one", authorization="Basic x"))]
    for request in conditional:
        request.headers |= VALIDATORS
    for outcome in edge.send(*conditional):
        if VALIDATORS.keys() & outcome.headers.keys():
            yield "validators of a page reach the app"
    preview = [visitor("one"), visitor("one", rsc="1"), visitor("one", method="POST"), visitor("one", "/api/x"), visitor("one")]
    for request in preview[:-1]:
        request.cookies["everfresh-preview"] = "signed"
    page, *app, plain = edge.send(*preview)
    if any("everfresh-preview" in outcome.cookies for outcome in app):
        yield "the preview cookie reaches the app"
    if "everfresh-preview" not in page.cookies or page.key == plain.key:
        yield "a preview has no cookie, or shares the cache key of the page"
