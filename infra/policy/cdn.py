"""Rules for the distribution, and who may invoke the serving function."""

from policy.rule import ALL_ON, LAMBDA, NESTED, PERMISSION, PROPERTIES, RESOURCES, drop, put, rewrite, rule


@rule(
    "the distribution, and nobody else, may invoke the serving function",
    drop("cdn Resources MayInvoke"),
    drop("cdn Resources MayInvokeUrl Properties SourceArn"),
    put("cdn Resources MayInvoke Properties Principal", "*"),
    put("cdn Resources MayInvoke Properties InvokedViaFunctionUrl", False),
    put("cdn Resources MayInvokeUrl Properties FunctionUrlAuthType", "NONE"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} FunctionUrlConfig AuthType", "NONE"),
    put(f"{RESOURCES} Anybody", {"Type": PERMISSION, "Properties": {"Action": "lambda:InvokeFunction", "Principal": "*"}}),
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
        yield "the function URL is open to everybody"
    control = stack.cdn().resources()["AccessControl"]["OriginAccessControlConfig"]
    signing = (control["OriginAccessControlOriginType"], control["SigningBehavior"], control["SigningProtocol"])
    if signing != ("lambda", "always", "sigv4"):
        yield f"the distribution signs {signing}"
    for origin in stack.cdn().resources()["Distribution"]["DistributionConfig"]["Origins"]:
        if origin.get("OriginAccessControlId") != "${AccessControl.Id}":
            yield "the distribution does not sign"
    cdn = stack.main().resources(NESTED)["Cdn"]["Parameters"]
    if (cdn["ServeFunctionArn"], cdn["ServeUrl"]) != ("${ServeFunction.Alias}", "${ServeFunctionUrl.FunctionUrl}"):
        yield "the distribution gets another function than the alias that its URL is for"


BEHAVIOUR = "cdn Resources Distribution Properties DistributionConfig"
KEY = "cdn Resources PageCachePolicy Properties CachePolicyConfig"
SIGNED = "cdn Resources SignedRequestPolicy Properties OriginRequestPolicyConfig"
CERTIFICATE = "arn:aws:acm:us-east-1:111122223333:certificate/0123"


@rule(
    "the distribution names the host and keeps pages as the serving function says; signed requests pass through",
    drop(f"{BEHAVIOUR} DefaultCacheBehavior FunctionAssociations"),
    drop(f"{BEHAVIOUR} CacheBehaviors 0 FunctionAssociations"),
    put(f"{KEY} ParametersInCacheKeyAndForwardedToOrigin HeadersConfig", {"HeaderBehavior": "none"}),
    put(f"{KEY} DefaultTTL", 86400),
    put(f"{KEY} MinTTL", 1),
    put("cdn Resources NameHost Properties FunctionCode", "function handler(event) { return event.request; }"),
    put(f"{BEHAVIOUR} CacheBehaviors 0 CachePolicyId", {"Ref": "PageCachePolicy"}),
    put(f"{BEHAVIOUR} CacheBehaviors 0 AllowedMethods", ["GET", "HEAD"]),
    put(f"{SIGNED} HeadersConfig", {"HeaderBehavior": "none"}),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_TRUST_HOST_HEADER", "false"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters PreviewCookie", ""),
    put(f"{BEHAVIOUR} DefaultCacheBehavior CachePolicyId", "658327ea-f89d-4fab-a63d-7e88639e58f6"),  # AWS's own "CachingOptimized"
    put(f"{BEHAVIOUR} DefaultCacheBehavior AllowedMethods", ["GET", "HEAD", "OPTIONS"]),
    drop(f"{BEHAVIOUR} DefaultCacheBehavior AllowedMethods"),
    put(f"{KEY} ParametersInCacheKeyAndForwardedToOrigin QueryStringsConfig", {"QueryStringBehavior": "none"}),
    put(f"{SIGNED} QueryStringsConfig", {"QueryStringBehavior": "none"}),
    put("cdn Resources NameHost Properties AutoPublish", False),
    rewrite("crates/serve/src/rules/refusal.rs", '"GET, HEAD"', '"GET, HEAD, OPTIONS"'),
    drop(f"{BEHAVIOUR} CustomErrorResponses"),
    drop(f"{BEHAVIOUR} CustomErrorResponses 0"),
    drop(f"{BEHAVIOUR} CustomErrorResponses 2"),
    put(f"{BEHAVIOUR} CustomErrorResponses 1 ErrorCachingMinTTL", 10),
    put(f"{BEHAVIOUR} CustomErrorResponses 0 ResponsePagePath", "/sorry.html"),
    put(f"{RESOURCES} Cdn {PROPERTIES} Parameters TagHeader", "X-Tags"),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables EVERFRESH_TAG_HEADER"),
    rewrite("crates/serve/src/rules/preview.rs", '"everfresh-preview"', '"preview"'),
    rewrite("crates/serve/src/serve.rs", "x-everfresh-host", "x-host"),
)
def distribution(stack):
    made = stack.cdn(TagHeader="Cache-Tag", PreviewCookie="everfresh-preview").resources()
    config = made["Distribution"]["DistributionConfig"]
    for behaviour in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        named = {"EventType": "viewer-request", "FunctionARN": "${NameHost.FunctionMetadata.FunctionARN}"}
        if named not in behaviour.get("FunctionAssociations", []):
            yield f"{behaviour.get('PathPattern', 'pages')}: the host is not named"
    if "request.headers['x-everfresh-host'] = { value: request.headers.host.value };" not in made["NameHost"]["FunctionCode"]:
        yield "NameHost does not overwrite x-everfresh-host"
    if made["NameHost"].get("AutoPublish") is not True:
        yield "NameHost is not published, and so is not run, or an older one is"
    if '"x-everfresh-host"' not in stack.code("serve/src"):
        yield "the serving function does not read x-everfresh-host"
    pages = config["DefaultCacheBehavior"]
    if pages["CachePolicyId"] != "${PageCachePolicy}":
        yield "pages: are kept by another policy than PageCachePolicy"
    answered = pages.get("AllowedMethods", [])
    if answered != ["GET", "HEAD"] or f'with("allow", "{", ".join(answered)}")' not in stack.sources["crates/serve/src/rules/refusal.rs"]:
        yield f"pages: {answered} come to the serving function, which answers GET and HEAD"
    cache = made["PageCachePolicy"]["CachePolicyConfig"]
    if (cache["MinTTL"], cache["DefaultTTL"]) != (0, 0):
        yield "PageCachePolicy: keeps what the serving function does not want kept"
    key = cache["ParametersInCacheKeyAndForwardedToOrigin"]
    if key["HeadersConfig"] != {"HeaderBehavior": "whitelist", "Headers": ["x-everfresh-host"]}:
        yield "PageCachePolicy: the host must be in the key, and no other header"
    if key["CookiesConfig"] != {"CookieBehavior": "whitelist", "Cookies": ["everfresh-preview"]}:
        yield "PageCachePolicy: previews must be in the key, and no other cookie"
    # Which of them make another page only everfresh.toml knows, and a signed request is signed with its own.
    for name, policy in (("PageCachePolicy", key), ("SignedRequestPolicy", made["SignedRequestPolicy"]["OriginRequestPolicyConfig"])):
        if policy["QueryStringsConfig"] != {"QueryStringBehavior": "all"}:
            yield f"{name}: parameters in the URL are lost"
    passed_on = [{"ErrorCode": status, "ErrorCachingMinTTL": 0} for status in (404, 500, 502, 503, 504)]
    if sorted(config.get("CustomErrorResponses", []), key=lambda entry: entry["ErrorCode"]) != passed_on:
        yield "errors are kept, or replaced, by the distribution"
    [signed] = config["CacheBehaviors"]
    disabled = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
    if (signed["PathPattern"], signed["CachePolicyId"]) != ("/_everfresh/*", disabled) or "POST" not in signed["AllowedMethods"]:
        yield "/_everfresh/*: must take POST and keep nothing"
    headers = made["SignedRequestPolicy"]["OriginRequestPolicyConfig"]["HeadersConfig"]
    if signed["OriginRequestPolicyId"] != "${SignedRequestPolicy}" or headers != {
        "HeaderBehavior": "allExcept",
        "Headers": ["host"],
    }:
        yield "/_everfresh/*: signed headers do not get through"
    main = stack.main(**ALL_ON)
    worker, variables = (main.resources(LAMBDA)[name]["Environment"]["Variables"] for name in ("WorkerFunction", "ServeFunction"))
    if variables.get("EVERFRESH_TRUST_HOST_HEADER") != "true":
        yield "ServeFunction: does not believe the host that it is told"
    given = main.resources(NESTED)["Cdn"]["Parameters"]
    if given["TagHeader"] != variables.get("EVERFRESH_TAG_HEADER") or config["CacheTagConfig"] != {"HeaderName": "Cache-Tag"}:
        yield "tags are sent in another header than the distribution reads"
    if worker.get("EVERFRESH_TAG_HEADER") != variables.get("EVERFRESH_TAG_HEADER"):
        yield "the worker does not know that pages carry tags, and asks the distribution to forget them by path"
    if f'COOKIE: &str = "{given["PreviewCookie"]}"' not in stack.code("serve/src"):
        yield "the serving function reads another preview cookie than the distribution lets through"


@rule(
    "the site has its own names with its own certificate, over TLS that is still good, or CloudFront's name with neither",
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
            yield f"with {parameters or 'no hosts'}: {config.get('Aliases')} by {config['ViewerCertificate']}"
        for origin in config["Origins"]:
            if origin["CustomOriginConfig"]["OriginSSLProtocols"] != ["TLSv1.2"]:
                yield f"the distribution asks over {origin['CustomOriginConfig']['OriginSSLProtocols']}"
