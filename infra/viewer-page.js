import cf from 'cloudfront';

// Viewer request of pages and of signed requests below /_everfresh/.
// Values of the template. Without an app origin every request goes to the serving function.
const HAS_APP = '${AppOrigin}' !== '';
const SENDS_SITE_HOST = '${AppOriginHost}' === 'site';
const PASS_WHEN = '${PassWhen}'.split(',');
const PREVIEW_COOKIE = '${PreviewCookie}';
// Headers by which the app recognises Everfresh: no client may send them.
const SECRET_HEADERS = '${SecretHeaders}'.split(',');

// A client's own values would be taken for those of Everfresh, of CloudFront or of a framework.
// CloudFront adds x-forwarded-for itself, and hides x-forwarded-proto and x-real-ip from functions.
// Many servers read an underscore in a name as a hyphen. The serving function has the same list: a test
// in crates/serve/src/pass/request.rs compares them.
const NEVER_FORWARDED = /^(?!x-middleware-prefetch$)(cf-connecting-ip|client-ip|fastly-client-ip|forwarded|proxy|proxy-.*|true-client-ip|x-amz-.*|x-amzn-.*|x-client-ip|x-cluster-client-ip|x-everfresh-.*|x-forwarded.*|x-host|x-http-method|x-http-method-override|x-invoke-.*|x-method-override|x-middleware-.*|x-original-.*|x-prerender-.*|x-real-ip|x-rewrite-.*)$/;
const SIGNED = /^(x-everfresh-(key-id|timestamp|nonce|signature)|x-amz-content-sha256)$/;
const NOT_ALLOWED = 'Only GET and HEAD are allowed here. The stack of this site has no app origin (parameter AppOrigin).\n';
const CONDITIONAL = ['if-none-match', 'if-modified-since', 'if-match', 'if-unmodified-since', 'if-range', 'range'];

function handler(event) {
    const request = event.request;
    const headers = request.headers;
    const signed = isSigned(request.uri);
    Object.keys(headers).forEach((name) => {
        const dashed = name.replace(/_/g, '-');
        const removed = NEVER_FORWARDED.test(dashed) || SECRET_HEADERS.indexOf(dashed) >= 0;
        if (removed && !(signed && SIGNED.test(name))) delete headers[name];
    });
    // The serving function receives its own URL as Host.
    const host = headers.host.value;
    headers['x-everfresh-host'] = { value: host };
    if (signed) return request;

    const reads = request.method === 'GET' || request.method === 'HEAD';
    if (reads && !headers.authorization && !PASS_WHEN.some((name) => headers[name])) return request;
    if (!reads && !HAS_APP) return notAllowed();

    // Part of the cache key, and different for each request: the response is neither taken from the
    // cache nor given to another client. Absent for pages.
    headers['x-everfresh-pass'] = { value: event.context.requestId };
    // Validators belong to the page; a 304 of the app would revive a page that was withdrawn.
    if (reads) CONDITIONAL.forEach((name) => { delete headers[name]; });
    if (HAS_APP) {
        delete request.cookies[PREVIEW_COOKIE];
        headers['x-forwarded-host'] = { value: host };
        if (SENDS_SITE_HOST) cf.selectRequestOriginById('app', { hostHeader: host.split(':')[0] });
        else cf.selectRequestOriginById('app');
    }
    return request;
}

// Behaviours are chosen by the normalised path, but a function sees the raw one: a path that
// normalising could change counts as a page's.
function isSigned(uri) {
    return uri.startsWith('/_everfresh/') && !/%|\/\.|\/\/|\\/.test(uri);
}

function notAllowed() {
    return {
        statusCode: 405,
        statusDescription: 'Method Not Allowed',
        headers: {
            allow: { value: 'GET, HEAD' },
            'cache-control': { value: 'no-store' },
            'content-type': { value: 'text/plain; charset=utf-8' },
        },
        body: { encoding: 'text', data: NOT_ALLOWED },
    };
}
