"""Rules for the app's assets, for a distribution without an app, and for the switches of CloudFront
and serving function."""

from edge import Edge, Request
from policy.passes import ALL_VIEWER, CONFIG, PAGE_CODE, PATHS, SITE, visitor
from policy.rule import LAMBDA, NESTED, PROPERTIES, RESOURCES, drop, edit, put, rule

ASSET_KEY = "cdn Resources AssetCachePolicy Properties CachePolicyConfig ParametersInCacheKeyAndForwardedToOrigin"
ASSET_REQUEST = "cdn Resources AssetRequestPolicy Properties OriginRequestPolicyConfig"


@rule(
    "assets are cached by the app's headers, with query and CORS, without cookies and Authorization",
    put(f"{ASSET_KEY} QueryStringsConfig", {"QueryStringBehavior": "none"}),
    put(f"{ASSET_KEY} CookiesConfig", {"CookieBehavior": "all"}),
    put(f"{ASSET_KEY} HeadersConfig Headers", ["x-forwarded-host"]),
    put(f"{ASSET_KEY} HeadersConfig Headers", ["origin"]),
    put(f"{ASSET_KEY} HeadersConfig Headers", ["origin", "x-forwarded-host", "authorization"]),
    put("cdn Resources AssetCachePolicy Properties CachePolicyConfig DefaultTTL", 86400),
    put("cdn Resources AssetCachePolicy Properties CachePolicyConfig MinTTL", 1),
    put(f"{ASSET_REQUEST} CookiesConfig", {"CookieBehavior": "all"}),
    put(f"{ASSET_REQUEST} HeadersConfig", {"HeaderBehavior": "none"}),
    drop("cdn Resources WithoutCookies Properties ResponseHeadersPolicyConfig RemoveHeadersConfig Items 0"),
    drop(f"{CONFIG} CacheBehaviors 6 Fn::If 1 ResponseHeadersPolicyId"),
    put(f"{CONFIG} CacheBehaviors 6 Fn::If 1 CachePolicyId", {"Ref": "PageCachePolicy"}),
    put(f"{CONFIG} CacheBehaviors 7 Fn::If 1 AllowedMethods", ["GET", "HEAD"]),
    put(f"{CONFIG} CacheBehaviors 7 Fn::If 1 OriginRequestPolicyId", ALL_VIEWER),
    put(f"{CONFIG} CacheBehaviors 7 Fn::If 1 TargetOriginId", "serve"),
)
def assets(stack):
    edge = Edge(stack.site(**SITE, **PATHS))
    policy = edge.made["AssetCachePolicy"]["CachePolicyConfig"]
    if (policy["MinTTL"], policy["DefaultTTL"]) != (0, 0):
        yield "AssetCachePolicy: MinTTL and DefaultTTL must be 0"
    for path in ("/_next/static/chunks/x.js", "/img/x.png"):
        one, two = visitor("one", path, authorization="Basic x"), visitor("another", path)
        cors, older, preflight = visitor("one", path, origin="https://other.example"), visitor("one", path), visitor("one", path, "OPTIONS")
        host = Request("GET", path, host="shop.example.com")
        older.query = "v=1"
        preflight.headers |= {"access-control-request-method": "GET", "access-control-request-headers": "x"}
        one, two, cors, older, host, preflight = edge.send(one, two, cors, older, host, preflight)
        if one.key is None or one.key != two.key:
            yield f"{path}: is not cached for all visitors"
        if len({repr(outcome.key) for outcome in (one, cors, older, host)}) != 4 or cors.headers.get("origin") != "https://other.example":
            yield f"{path}: query, origin and host are not in the cache key"
        for outcome in (one, two, cors, older):
            if outcome.origin != "app" or outcome.cookies or "authorization" in outcome.headers or "Set-Cookie" not in outcome.removed:
                yield f"{path}: comes from elsewhere, or with a visitor's cookies or Authorization"
            if outcome.headers["host"] != "www.example.com":
                yield f"{path}: the app does not receive the site's host"
        if (preflight.origin, preflight.key) != ("app", None) or "access-control-request-method" not in preflight.headers:
            yield f"{path}: a preflight request is not answered by the app"


@rule(
    "without an app, reads go to the serving function and other methods are refused in words",
    edit(PAGE_CODE, "if (!reads && !HAS_APP) return notAllowed();", ""),
    edit(PAGE_CODE, "const HAS_APP = '${AppOrigin}' !== '';", "const HAS_APP = true;"),
    edit(PAGE_CODE, "statusCode: 405", "statusCode: 403"),
    edit(PAGE_CODE, "(parameter AppOrigin)", ""),
    edit(PAGE_CODE, "event.context.requestId", "'1'"),
    put(f"{CONFIG} DefaultCacheBehavior AllowedMethods", ["GET", "HEAD"]),
    put("cdn Conditions HasPassPath1", {"Fn::Equals": ["", ""]}),
    put("cdn Conditions HasAssetPath1", {"Fn::Equals": ["", ""]}),
    put("cdn Conditions HasApp", {"Fn::Equals": ["", ""]}),
    put("main Parameters AppOrigin Default", "app.example.net"),
)
def without_app(stack):
    edge = Edge(stack.site(**PATHS))
    if list(edge.origins) != ["serve"] or len(edge.config["CacheBehaviors"]) != 1 or "AppRequest" in edge.made:
        yield "the distribution has an origin or a behaviour without an app"
        return
    page, one, two = edge.send(visitor("one"), visitor("one", rsc="1"), visitor("another", rsc="1"))
    if any(outcome.origin != "serve" for outcome in (page, one, two)) or len({page.key, one.key, two.key}) != 3:
        yield "passed reads share a cache key, or do not reach the serving function"
    if "x-everfresh-pass" in page.headers or not one.headers.get("x-everfresh-pass"):
        yield "the serving function cannot distinguish passed reads from pages"
    for outcome in edge.send(*(visitor("one", method=method) for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"))):
        if outcome.status != 405 or "AppOrigin" not in outcome.text:
            yield f"other methods get {outcome.status} {outcome.text!r}"


@rule(
    "each of five pass paths and five asset paths has a behaviour",
    *[drop(f"{CONFIG} CacheBehaviors {number}") for number in (1, 5, 6, 10)],
    *[put(f"cdn Conditions Has{kind}Path5", {"Fn::Equals": ["", "1"]}) for kind in ("Pass", "Asset")],
    put("cdn Conditions HasPassPath2", {"Condition": "HasPassPath1"}),
    put(f"{CONFIG} CacheBehaviors 4 Fn::If 1 PathPattern", "/pass4/*"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters PassPath3", ""),
    drop(f"{RESOURCES} Cdn {PROPERTIES} Parameters AssetPath5"),
)
def slots(stack):
    for used in range(6):
        paths = {kind: [f"/{kind}{number}-{used}" for number in range(used)] for kind in ("Pass", "Asset")}
        given = {f"{kind}Paths": ",".join(listed) for kind, listed in paths.items()}
        behaviours = Edge(stack.site(AppOrigin="app.example.net", **given)).config["CacheBehaviors"]
        found = [behaviour["PathPattern"] for behaviour in behaviours]
        if found != ["/_everfresh/*", *paths["Pass"], *paths["Asset"]]:
            yield f"with {used} paths of each kind: {found}"


SERVE = f"{RESOURCES} ServeFunction {PROPERTIES}"
WORKER = f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables"


@rule(
    "withdrawals are always invalidated by tag; the serving function streams and is limited only if so configured",
    drop(f"{WORKER} EVERFRESH_CDN_DISTRIBUTION"),
    drop(f"{WORKER} EVERFRESH_TAG_HEADER"),
    put(f"{WORKER} EVERFRESH_CDN_INVALIDATE", "all"),
    put(f"{WORKER} EVERFRESH_CDN_INVALIDATE", "withdrawals"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters TagHeader", ""),
    put(f"{SERVE} Environment Variables EVERFRESH_TAG_HEADER", "Surrogate-Key"),
    put(f"{SERVE} FunctionUrlConfig InvokeMode", "RESPONSE_STREAM"),
    put(f"{SERVE} Environment Variables EVERFRESH_RESPONSE_STREAM", "true"),
    drop(f"{SERVE} ReservedConcurrentExecutions"),
    put(f"{SERVE} ReservedConcurrentExecutions", {"Ref": "ServeConcurrency"}),
)
def switches(stack):
    for given, invalidates in (({}, "withdrawals"), ({"InvalidateCdn": "true"}, "all")):
        main = stack.main(**given)
        worker, serve = (main.resources(LAMBDA)[name]["Environment"]["Variables"] for name in ("WorkerFunction", "ServeFunction"))
        if (worker.get("EVERFRESH_CDN_DISTRIBUTION"), worker.get("EVERFRESH_CDN_INVALIDATE")) != ("${Cdn.Outputs.DistributionId}", invalidates):
            yield f"with {given or 'defaults'}: the worker does not invalidate {invalidates}"
        headers = (worker.get("EVERFRESH_TAG_HEADER"), serve.get("EVERFRESH_TAG_HEADER"), main.resources(NESTED)["Cdn"]["Parameters"]["TagHeader"])
        if headers != ("Cache-Tag",) * 3:
            yield f"with {given or 'defaults'}: the tag headers are {headers}"
    for streams, mode in (("false", "BUFFERED"), ("true", "RESPONSE_STREAM")):
        serve = stack.main(ResponseStream=streams).resources(LAMBDA)["ServeFunction"]
        set_to = (serve["FunctionUrlConfig"]["InvokeMode"], serve["Environment"]["Variables"].get("EVERFRESH_RESPONSE_STREAM"))
        if set_to != (mode, streams):
            yield f"ResponseStream {streams}: function URL and function are set to {set_to}"
    for given, reserved in ((0, None), (7, 7)):
        serve = stack.main(ServeConcurrency=given).resources(LAMBDA)["ServeFunction"]
        if serve.get("ReservedConcurrentExecutions") != reserved:
            yield f"ServeConcurrency {given} reserves {serve.get('ReservedConcurrentExecutions')}"
