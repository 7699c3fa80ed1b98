// Viewer request of the paths that always go to the app origin.
const PREVIEW_COOKIE = '${PreviewCookie}';
const SECRET_HEADERS = '${SecretHeaders}'.split(',');

// The same as in viewer-page.js.
const NEVER_FORWARDED = /^(?!x-middleware-prefetch$)(cf-connecting-ip|client-ip|fastly-client-ip|forwarded|proxy|proxy-.*|true-client-ip|x-amz-.*|x-amzn-.*|x-client-ip|x-cluster-client-ip|x-everfresh-.*|x-forwarded.*|x-host|x-http-method|x-http-method-override|x-invoke-.*|x-method-override|x-middleware-.*|x-original-.*|x-prerender-.*|x-real-ip|x-rewrite-.*)$/;

function handler(event) {
    const request = event.request;
    const headers = request.headers;
    Object.keys(headers).forEach((name) => {
        const dashed = name.replace(/_/g, '-');
        if (NEVER_FORWARDED.test(dashed) || SECRET_HEADERS.indexOf(dashed) >= 0) delete headers[name];
    });
    delete request.cookies[PREVIEW_COOKIE];
    // Part of the cache key of assets.
    headers['x-forwarded-host'] = { value: headers.host.value };
    return request;
}
