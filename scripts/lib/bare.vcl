# Varnish without its own care for visitors: requests with a cookie or with Authorization are looked
# up like all others, and an answer that sets a cookie is stored if its headers allow it.
vcl 4.1;

backend everfresh { .host = "127.0.0.1"; .port = "@EVERFRESH@"; }

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") { return (pass); }
    return (hash);
}

sub vcl_backend_response {
    if (beresp.ttl <= 0s || beresp.http.Cache-Control ~ "(?i)no-cache|no-store|private" || beresp.http.Vary == "*") {
        set beresp.uncacheable = true;
        set beresp.ttl = 120s;
    }
    return (deliver);
}
