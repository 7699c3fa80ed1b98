# Varnish in front of Everfresh. It goes by s-maxage and stale-while-revalidate itself; all that is here is for stale-if-error.
vcl 4.1;
import std;

backend everfresh { .host = "127.0.0.1"; .port = "@EVERFRESH@"; }

sub vcl_recv {
    # Grace is how long a copy may be served beyond its life: stale-if-error, see below. While Everfresh answers, no more of it is
    # used than stale-while-revalidate allows, which is as much, but at most 60 seconds.
    set req.grace = 60s;
    if (req.restarts > 0) { set req.grace = 365d; }
}

sub vcl_backend_response {
    if (beresp.status >= 500) {
        call rather_a_copy;
        # By default, Varnish remembers for two minutes that there was something not to be kept, and finds no copy meanwhile.
        set beresp.uncacheable = true;
        set beresp.ttl = 1s;
        return (deliver);
    }
    if (beresp.http.Cache-Control ~ "stale-if-error=[0-9]") {
        set beresp.grace = std.duration(regsub(beresp.http.Cache-Control, "^.*stale-if-error=([0-9]+).*$", "\1s"), 0s);
    }
}

sub vcl_backend_error { call rather_a_copy; }

# Varnish asks with a condition if it has a copy. An error must not take its place.
sub rather_a_copy {
    if (bereq.http.If-None-Match) { return (abandon); }
}

# Abandoned: once more, with that copy.
sub vcl_synth {
    if (resp.status == 503 && req.restarts == 0) { return (restart); }
}
