"""Rules for the distribution, and for the permission to invoke the serving function."""

from policy.rule import (
    ALL_ON, KIB, LAMBDA, NESTED, PERMISSION, PROPERTIES, RESOURCES, VIEWER_FUNCTIONS, drop, put, rewrite, rule,
)  # fmt: skip


@rule(
    "only the distribution may invoke the serving function",
    drop("cdn Resources MayInvoke"),
    drop("cdn Resources MayInvokeUrl Properties SourceArn"),
    put("cdn Resources MayInvoke Properties Principal", "*"),
    put("cdn Resources MayInvoke Properties InvokedViaFunctionUrl", False),
    put("cdn Resources MayInvokeUrl Properties FunctionUrlAuthType", "NONE"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} FunctionUrlConfig AuthType", "NONE"),
    put(f"{RESOURCES} Public", {"Type": PERMISSION, "Properties": {"Action": "lambda:InvokeFunction", "Principal": "*"}}),
    put("cdn Resources AccessControl Properties OriginAccessControlConfig OriginAccessControlOriginType", "s3"),
    put("cdn Resources AccessControl Properties OriginAccessControlConfig SigningBehavior", "no-override"),
    drop("cdn Resources Distribution Properties DistributionConfig Origins 0 OriginAccessControlId"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters ServeFunctionArn", {"Fn::GetAtt": ["ServeFunction", "Arn"]}),
)
def invocation(stack):
    common = {
        "FunctionName": "${ServeFunction.Alias}",
        "Principal": "cloudfront.amazonaws.com",
        "SourceArn": "arn:aws:cloudfront::111122223333:distribution/${Distribution}",
    }
    needed = [
        common | {"Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": "AWS_IAM"},
        common | {"Action": "lambda:InvokeFunction", "InvokedViaFunctionUrl": True},
    ]
    granted = list(stack.cdn().resources(PERMISSION).values())
    for permission in needed:
        if permission not in granted:
            yield f"the distribution lacks {permission['Action']}"
    if len(granted) != len(needed) or stack.main().resources(PERMISSION):
        yield "there are other permissions"
    url = stack.main().resources(LAMBDA)["ServeFunction"].get("FunctionUrlConfig", {})
    if url.get("AuthType") != "AWS_IAM":
        yield "the function URL is public"
    control = stack.cdn().resources()["AccessControl"]["OriginAccessControlConfig"]
    signing = (control["OriginAccessControlOriginType"], control["SigningBehavior"], control["SigningProtocol"])
    if signing != ("lambda", "always", "sigv4"):
        yield f"the distribution signs by {signing}"
    for origin in stack.cdn().resources()["Distribution"]["DistributionConfig"]["Origins"]:
        if origin["Id"] == "serve" and origin.get("OriginAccessControlId") != "${AccessControl.Id}":
            yield "the distribution does not sign its requests"
    cdn = stack.main().resources(NESTED)["Cdn"]["Parameters"]
    if (cdn["ServeFunctionArn"], cdn["ServeUrl"]) != ("${ServeFunction.Alias}", "${ServeFunctionUrl.FunctionUrl}"):
        yield "the distribution has another function than the alias of its URL"


BEHAVIOUR = "cdn Resources Distribution Properties DistributionConfig"
KEY = "cdn Resources PageCachePolicy Properties CachePolicyConfig"
SIGNED = "cdn Resources SignedRequestPolicy Properties OriginRequestPolicyConfig"
ALL_METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]
CERTIFICATE = "arn:aws:acm:us-east-1:111122223333:certificate/0123"


@rule(
    "the distribution forwards the host, caches by Cache-Control, and passes signed requests through",
    drop(f"{BEHAVIOUR} DefaultCacheBehavior FunctionAssociations"),
    drop(f"{BEHAVIOUR} CacheBehaviors 0 FunctionAssociations"),
    put(f"{KEY} ParametersInCacheKeyAndForwardedToOrigin HeadersConfig", {"HeaderBehavior": "none"}),
    put(f"{KEY} DefaultTTL", 86400),
    put(f"{KEY} MinTTL", 1),
    put("cdn Resources PageRequest Properties FunctionCode Fn::Sub", "function handler(event) { return event.request; }"),
    rewrite("infra/viewer-app.js", "const request", "var request"),
    rewrite("infra/viewer-page.js", "// Viewer request", "// " + 10240 * "x"),
    put(f"{BEHAVIOUR} CacheBehaviors 0 CachePolicyId", {"Ref": "PageCachePolicy"}),
    put(f"{BEHAVIOUR} CacheBehaviors 0 AllowedMethods", ["GET", "HEAD"]),
    put(f"{SIGNED} HeadersConfig", {"HeaderBehavior": "none"}),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_TRUST_HOST_HEADER", "false"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters PreviewCookie", ""),
    # AWS's own "CachingOptimized".
    put(f"{BEHAVIOUR} DefaultCacheBehavior CachePolicyId", "658327ea-f89d-4fab-a63d-7e88639e58f6"),
    put(f"{BEHAVIOUR} DefaultCacheBehavior AllowedMethods", ["GET", "HEAD", "OPTIONS"]),
    put(f"{BEHAVIOUR} DefaultCacheBehavior CachedMethods", ["GET", "HEAD", "OPTIONS"]),
    drop(f"{BEHAVIOUR} DefaultCacheBehavior AllowedMethods"),
    put(f"{KEY} ParametersInCacheKeyAndForwardedToOrigin QueryStringsConfig", {"QueryStringBehavior": "none"}),
    put(f"{SIGNED} QueryStringsConfig", {"QueryStringBehavior": "none"}),
    put("cdn Resources PageRequest Properties AutoPublish", False),
    put("cdn Resources AppRequest Properties FunctionConfig Runtime", "cloudfront-js-1.0"),
    drop(f"{BEHAVIOUR} CustomErrorResponses"),
    drop(f"{BEHAVIOUR} CustomErrorResponses 0"),
    drop(f"{BEHAVIOUR} CustomErrorResponses 2"),
    put(f"{BEHAVIOUR} CustomErrorResponses 1 ErrorCachingMinTTL", 10),
    put(f"{BEHAVIOUR} CustomErrorResponses 0 ResponsePagePath", "/sorry.html"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters TagHeader", "X-Tags"),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables EVERFRESH_TAG_HEADER"),
    rewrite("crates/serve/src", '"everfresh-preview"', '"preview"'),
    rewrite("crates/serve/src", "x-everfresh-host", "x-host"),
)
def distribution(stack):
    made = stack.site(**ALL_ON).resources()
    config = made["Distribution"]["DistributionConfig"]
    for behaviour in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        name = "PageRequest" if behaviour["TargetOriginId"] == "serve" else "AppRequest"
        expected = [{"EventType": "viewer-request", "FunctionARN": f"${{{name}.FunctionMetadata.FunctionARN}}"}]
        if behaviour.get("FunctionAssociations") != expected:
            yield f"{behaviour.get('PathPattern', 'pages')}: {name} is not called"
    for name, path in VIEWER_FUNCTIONS.items():
        function = made[name]
        if (function.get("AutoPublish"), function["FunctionConfig"]["Runtime"]) != (True, "cloudfront-js-2.0"):
            yield f"{name}: is not published automatically, or has another runtime"
        if stack.templates["cdn"]["Resources"][name]["Properties"]["FunctionCode"] != {"Fn::Sub": stack.sources[path]}:
            yield f"{name}: is not {path}"
        if len(function["FunctionCode"].encode()) > 10 * KIB or "${" in function["FunctionCode"]:
            yield f"{name}: is larger than CloudFront's quota of 10 KB, or refers to an unknown value"
    if '"x-everfresh-host"' not in stack.code("serve/src"):
        yield "the serving function does not read x-everfresh-host"
    pages = config["DefaultCacheBehavior"]
    if pages["CachePolicyId"] != "${PageCachePolicy}":
        yield "pages: have another cache policy than PageCachePolicy"
    if sorted(pages.get("AllowedMethods", [])) != ALL_METHODS or "CachedMethods" in pages:
        yield "pages: some methods do not reach PageRequest, or OPTIONS is cached"
    cache = made["PageCachePolicy"]["CachePolicyConfig"]
    if (cache["MinTTL"], cache["DefaultTTL"]) != (0, 0):
        yield "PageCachePolicy: MinTTL and DefaultTTL must be 0"
    key = cache["ParametersInCacheKeyAndForwardedToOrigin"]
    if key["HeadersConfig"] != {"HeaderBehavior": "whitelist", "Headers": ["x-everfresh-host", "x-everfresh-pass", "authorization"]}:
        yield "PageCachePolicy: the cache key must have the host, x-everfresh-pass, Authorization and no other header"
    if key["CookiesConfig"] != {"CookieBehavior": "whitelist", "Cookies": ["everfresh-preview"]}:
        yield "PageCachePolicy: the cache key must have the preview cookie and no other"
    # everfresh.toml decides which parameters distinguish pages, and a signature covers the
    # parameters.
    for name, policy in (("PageCachePolicy", key), ("SignedRequestPolicy", made["SignedRequestPolicy"]["OriginRequestPolicyConfig"])):
        if policy["QueryStringsConfig"] != {"QueryStringBehavior": "all"}:
            yield f"{name}: query parameters are not forwarded"
    passed_on = [{"ErrorCode": status, "ErrorCachingMinTTL": 0} for status in (400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504)]
    if sorted(config.get("CustomErrorResponses", []), key=lambda entry: entry["ErrorCode"]) != passed_on:
        yield "the distribution caches or replaces errors"
    signed = config["CacheBehaviors"][0]
    disabled = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
    if (signed["PathPattern"], signed["CachePolicyId"]) != ("/_everfresh/*", disabled) or "POST" not in signed["AllowedMethods"]:
        yield "/_everfresh/*: must allow POST and cache nothing"
    headers = made["SignedRequestPolicy"]["OriginRequestPolicyConfig"]["HeadersConfig"]
    if signed["OriginRequestPolicyId"] != "${SignedRequestPolicy}" or headers != {
        "HeaderBehavior": "allExcept",
        "Headers": ["host"],
    }:
        yield "/_everfresh/*: signed headers are not forwarded"
    main = stack.main(**ALL_ON)
    worker, variables = (main.resources(LAMBDA)[name]["Environment"]["Variables"] for name in ("WorkerFunction", "ServeFunction"))
    if variables.get("EVERFRESH_TRUST_HOST_HEADER") != "true":
        yield "ServeFunction: does not trust x-everfresh-host"
    given = main.resources(NESTED)["Cdn"]["Parameters"]
    if given["TagHeader"] != variables.get("EVERFRESH_TAG_HEADER") or config["CacheTagConfig"] != {"HeaderName": "Cache-Tag"}:
        yield "the serving function sends tags in another header than the distribution reads"
    if worker.get("EVERFRESH_TAG_HEADER") != variables.get("EVERFRESH_TAG_HEADER"):
        yield "the worker has no tag header, so it would invalidate by path"
    if f'COOKIE: &str = "{given["PreviewCookie"]}"' not in stack.code("serve/src"):
        yield "the serving function reads another preview cookie than the distribution forwards"


@rule(
    "the site has its own hosts with its own certificate and TLS 1.2, or CloudFront's domain with neither",
    put(f"{BEHAVIOUR} ViewerCertificate Fn::If 1 MinimumProtocolVersion", "TLSv1"),
    drop(f"{BEHAVIOUR} ViewerCertificate Fn::If 1 MinimumProtocolVersion"),
    put(f"{BEHAVIOUR} ViewerCertificate Fn::If 1 SslSupportMethod", "vip"),
    put(f"{BEHAVIOUR} ViewerCertificate", {"CloudFrontDefaultCertificate": True}),
    drop(f"{BEHAVIOUR} Aliases"),
    put(f"{BEHAVIOUR} Aliases", {"Ref": "Hosts"}),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters Hosts", "www.example.com"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters CertificateArn", ""),
    put(f"{BEHAVIOUR} Origins 0 CustomOriginConfig OriginSSLProtocols", ["TLSv1", "TLSv1.2"]),
)
def names(stack):
    own = {"AcmCertificateArn": CERTIFICATE, "SslSupportMethod": "sni-only", "MinimumProtocolVersion": "TLSv1.2_2021"}
    cases = [
        ({}, None, {"CloudFrontDefaultCertificate": True}),
        ({"Hosts": "example.com,www.example.com", "CertificateArn": CERTIFICATE}, ["example.com", "www.example.com"], own),
    ]
    for parameters, aliases, certificate in cases:
        given = stack.main(**parameters).resources(NESTED)["Cdn"]["Parameters"]
        made = stack.cdn(**{name: given[name] for name in ("Hosts", "CertificateArn")}).resources()
        config = made["Distribution"]["DistributionConfig"]
        if (config.get("Aliases"), config["ViewerCertificate"]) != (aliases, certificate):
            yield f"with {parameters or 'no hosts'}: aliases {config.get('Aliases')}, certificate {config['ViewerCertificate']}"
        for origin in config["Origins"]:
            if origin["CustomOriginConfig"]["OriginSSLProtocols"] != ["TLSv1.2"]:
                yield f"the distribution allows {origin['CustomOriginConfig']['OriginSSLProtocols']} to the origin"
