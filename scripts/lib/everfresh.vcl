# Varnish in front of Everfresh. Varnish implements s-maxage and stale-while-revalidate; this file
# adds stale-if-error.
vcl 4.1;
import std;

backend everfresh { .host = "127.0.0.1"; .port = "@EVERFRESH@"; }

sub vcl_recv {
    # Grace is how long a stale object may be served: stale-if-error, see below. While Everfresh
    # responds, at most 60 seconds of it are used, the maximum of stale-while-revalidate.
    set req.grace = 60s;
    if (req.restarts > 0) { set req.grace = 365d; }
}

sub vcl_backend_response {
    if (beresp.status >= 500) {
        call prefer_stale;
        # By default, Varnish stores a hit-for-miss object for two minutes, which hides the stale
        # object.
        set beresp.uncacheable = true;
        set beresp.ttl = 1s;
        return (deliver);
    }
    if (beresp.http.Cache-Control ~ "stale-if-error=[0-9]") {
        set beresp.grace = std.duration(regsub(beresp.http.Cache-Control, "^.*stale-if-error=([0-9]+).*$", "\1s"), 0s);
    }
}

sub vcl_backend_error { call prefer_stale; }

# A conditional request means that there is a stale object. An error must not replace it.
sub prefer_stale {
    if (bereq.http.If-None-Match) { return (abandon); }
}

# After an abandoned fetch: restart, and deliver the stale object.
sub vcl_synth {
    if (resp.status == 503 && req.restarts == 0) { return (restart); }
}
