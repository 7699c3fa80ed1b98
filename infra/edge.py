"""Evaluates the distribution for requests as CloudFront does: behaviour, viewer function, origin,
cache key, and what the origin receives. Runs the viewer functions in Node."""

import dataclasses
import json
import re
import subprocess
import urllib.parse

from reading import ROOT

CACHING_DISABLED = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
# AWS's own origin request policies.
ALL_COOKIES = {"CookiesConfig": {"CookieBehavior": "all"}, "QueryStringsConfig": {"QueryStringBehavior": "all"}}
MANAGED = {
    "216adef6-5c7f-47e4-b989-5492eafa07d3": ALL_COOKIES | {"HeadersConfig": {"HeaderBehavior": "allViewer"}},
    "b689b0a8-53d0-40ab-baf2-68738e2966ac": ALL_COOKIES | {"HeadersConfig": {"HeaderBehavior": "allExcept", "Headers": ["host"]}},
}
NO_POLICY = {"HeadersConfig": {"HeaderBehavior": "none"}, "CookiesConfig": {"CookieBehavior": "none"}}
# Forwarded whatever the policies say.
ALWAYS = ("range", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since")
SIGNATURE = "AWS4-HMAC-SHA256 of CloudFront"


@dataclasses.dataclass
class Request:
    method: str = "GET"
    path: str = "/"
    query: str = ""
    headers: dict = dataclasses.field(default_factory=dict)
    cookies: dict = dataclasses.field(default_factory=dict)
    host: str = "www.example.com"
    ip: str = "203.0.113.7"


@dataclasses.dataclass
class Outcome:
    """`origin` is none if the distribution answers itself. `key` is none if the response is not
    cached."""

    origin: str | None
    status: int | None = None
    text: str = ""
    key: tuple | None = None
    headers: dict = dataclasses.field(default_factory=dict)
    cookies: dict = dataclasses.field(default_factory=dict)
    removed: tuple = ()


class Edge:
    def __init__(self, template):
        """`template` is infra/cdn.yaml with its parameters."""
        self.made = template.resources()
        self.config = self.made["Distribution"]["DistributionConfig"]
        self.origins = {origin["Id"]: origin for origin in self.config["Origins"]}
        self.sent = 0

    def send(self, *requests):
        """The outcome of each request, in order."""
        behaviours = [self.behaviour(request.path) for request in requests]
        functions = run([(self.code(behaviour), self.event(request)) for behaviour, request in zip(behaviours, requests)])
        return [self.outcome(*given) for given in zip(requests, behaviours, functions)]

    def behaviour(self, path):
        for behaviour in self.config["CacheBehaviors"]:
            pattern = re.escape(behaviour["PathPattern"]).replace(r"\*", ".*").replace(r"\?", ".")
            if re.fullmatch(pattern, normalised(path)):
                return behaviour
        return self.config["DefaultCacheBehavior"]

    def code(self, behaviour):
        [association] = behaviour["FunctionAssociations"]
        name = re.fullmatch(r"\$\{(\w+)\.FunctionMetadata\.FunctionARN\}", association["FunctionARN"])[1]
        return self.made[name]["FunctionCode"]

    def event(self, request):
        self.sent += 1
        headers = {name: {"value": value} for name, value in request.headers.items()} | {"host": {"value": request.host}}
        cookies = {name: {"value": value} for name, value in request.cookies.items()}
        return {
            "version": "1.0",
            "context": {"distributionId": "E1", "eventType": "viewer-request", "requestId": f"request-{self.sent}"},
            "viewer": {"ip": request.ip},
            "request": {"method": request.method, "uri": request.path, "querystring": {}, "headers": headers, "cookies": cookies},
        }

    def outcome(self, request, behaviour, function):
        returned, chosen = function["returned"], function["origin"] or {"id": behaviour["TargetOriginId"]}
        if request.method not in behaviour["AllowedMethods"]:
            return Outcome(None, 403)
        if "statusCode" not in returned and chosen["id"] not in self.origins:
            return Outcome(None, 502)
        if "statusCode" in returned:
            return Outcome(None, returned["statusCode"], returned["body"]["data"])
        visible = {name: header["value"] for name, header in returned["headers"].items()}
        cookies = {name: cookie["value"] for name, cookie in returned["cookies"].items()}
        cache, forward = self.cache_policy(behaviour), self.request_policy(behaviour)
        in_key = {name: visible[name] for name in cache["HeadersConfig"].get("Headers", []) if name in visible}
        headers = {name: visible[name] for name in ALWAYS if name in visible} | in_key | forwarded(forward["HeadersConfig"], visible)
        if not (behaviour["CachePolicyId"] == CACHING_DISABLED or "authorization" in in_key):
            headers.pop("authorization", None)
        keyed = cookies if cache["CookiesConfig"]["CookieBehavior"] == "all" else cache["CookiesConfig"].get("Cookies", [])
        keyed_cookies = {name: cookies[name] for name in keyed if name in cookies}
        origin = self.origins[chosen["id"]]
        headers["host"] = chosen.get("hostHeader") or headers.get("host", origin["DomainName"])
        headers["x-forwarded-for"] = ", ".join(filter(None, [headers.get("x-forwarded-for"), request.ip]))
        headers |= {header["HeaderName"]: header["HeaderValue"] for header in origin.get("OriginCustomHeaders", [])}
        if "OriginAccessControlId" in origin:
            headers["authorization"] = SIGNATURE
        policy = self.made.get(str(behaviour.get("ResponseHeadersPolicyId"))[2:-1], {}).get("ResponseHeadersPolicyConfig", {})
        cached = behaviour["CachePolicyId"] != CACHING_DISABLED and request.method in ("GET", "HEAD")
        query = request.query if cache.get("QueryStringsConfig") == {"QueryStringBehavior": "all"} else ""
        return Outcome(
            chosen["id"],
            key=(request.path, query, tuple(sorted(in_key.items())), tuple(sorted(keyed_cookies.items()))) if cached else None,
            headers=headers,
            cookies=cookies if forward["CookiesConfig"]["CookieBehavior"] == "all" else keyed_cookies,
            removed=tuple(item["Header"] for item in policy.get("RemoveHeadersConfig", {}).get("Items", [])),
        )

    def cache_policy(self, behaviour):
        if behaviour["CachePolicyId"] == CACHING_DISABLED:
            return NO_POLICY
        return self.made[behaviour["CachePolicyId"][2:-1]]["CachePolicyConfig"]["ParametersInCacheKeyAndForwardedToOrigin"]

    def request_policy(self, behaviour):
        policy = behaviour.get("OriginRequestPolicyId")
        if policy is None:
            return NO_POLICY
        return MANAGED.get(policy) or self.made[policy[2:-1]]["OriginRequestPolicyConfig"]


def forwarded(policy, headers):
    """The headers that an origin request policy adds."""
    listed = [name.lower() for name in policy.get("Headers", [])]
    take = {
        "none": lambda name: False,
        "whitelist": lambda name: name in listed,
        "allExcept": lambda name: name not in listed,
        "allViewer": lambda name: True,
    }[policy["HeaderBehavior"]]
    return {name: value for name, value in headers.items() if take(name)}


def normalised(path):
    """The path by which CloudFront chooses a behaviour."""
    parts = []
    for part in urllib.parse.unquote(path).split("/")[1:]:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def run(calls):
    """What the functions return for their events, and the origin that they choose."""
    program = ["node", str(ROOT / "infra" / "viewer_harness.js")]
    text = json.dumps([{"code": code, "event": event} for code, event in calls])
    ended = subprocess.run(program, input=text, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(next((line for line in ended.stderr.splitlines() if "Error" in line), ended.stderr))
    return json.loads(ended.stdout)
