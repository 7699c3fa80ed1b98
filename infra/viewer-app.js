// Viewer request of the paths that always go to the app origin.
const PREVIEW_COOKIE = '${PreviewCookie}';

// The same as in viewer-page.js.
const NEVER_FORWARDED = /^(x-everfresh-.*|x-amz-.*|x-amzn-trace-id|x-forwarded-.*|forwarded|x-original-.*|x-rewrite-.*|x-host|x-http-method(-override)?|x-method-override|x-middleware-subrequest.*|x-invoke-.*)$/;

function handler(event) {
    const request = event.request;
    const headers = request.headers;
    Object.keys(headers).forEach((name) => {
        if (NEVER_FORWARDED.test(name.replace(/_/g, '-'))) delete headers[name];
    });
    delete request.cookies[PREVIEW_COOKIE];
    // Part of the cache key of assets.
    headers['x-forwarded-host'] = { value: headers.host.value };
    return request;
}
