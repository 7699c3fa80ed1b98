# Varnish as the cache of the suite; its parameters are in caches.mjs.
vcl 4.1;

backend origin { .host = "127.0.0.1"; .port = "@ORIGIN@"; }
