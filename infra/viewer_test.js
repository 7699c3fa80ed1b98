// Run with: node --test infra/
'use strict';

const assert = require('node:assert/strict');
const { readFileSync } = require('node:fs');
const { join } = require('node:path');
const test = require('node:test');
const { run } = require('./viewer_harness.js');

const DEFAULTS = { AppOrigin: 'app.example.com', AppOriginHost: 'origin', PassWhen: 'rsc,next-action', SecretHeaders: '', PreviewCookie: 'everfresh-preview' };

function code(file, values) {
    const text = readFileSync(join(__dirname, file), 'utf8');
    return text.replace(/\$\{(\w+)\}/g, (_, name) => ({ ...DEFAULTS, ...values })[name]);
}

function send(file, { method = 'GET', uri = '/', headers = {}, cookies = {}, id = 'id-1', ...values } = {}) {
    const boxed = (plain) => Object.fromEntries(Object.entries(plain).map(([name, value]) => [name, { value }]));
    const request = { method, uri, querystring: {}, headers: boxed({ host: 'www.example.com', ...headers }), cookies: boxed(cookies) };
    const { returned, origin } = run(code(file, values), { version: '1.0', context: { requestId: id }, viewer: { ip: '203.0.113.7' }, request });
    if (returned.statusCode) return { returned };
    const plain = (boxes) => Object.fromEntries(Object.entries(boxes).map(([name, box]) => [name, box.value]));
    return { headers: plain(returned.headers), cookies: plain(returned.cookies), origin };
}

const page = (request) => send('viewer-page.js', request);
const app = (request) => send('viewer-app.js', request);

const HOSTILE = Object.fromEntries([
    'x-everfresh-host', 'x-everfresh-pass', 'x-everfresh-preview', 'x-everfresh-debug', 'x-everfresh-signature', 'x-everfresh-key-id',
    'x-amz-date', 'x-amz-security-token', 'x-amz-content-sha256', 'x-amzn-trace-id', 'forwarded', 'x-forwarded-for', 'x-forwarded-host',
    'x-forwarded-port', 'x-forwarded-prefix', 'x-forwarded-server', 'x-original-url', 'x-original-host', 'x-rewrite-url', 'x-host',
    'x-http-method', 'x-http-method-override', 'x-method-override', 'x-middleware-subrequest', 'x-middleware-subrequest-id',
    'x-invoke-path', 'x-invoke-status', 'x_forwarded_host', 'x_everfresh_pass', 'x-original_url', 'x-forwarded', 'x-prerender-revalidate',
    'x-prerender-bypass-mode', 'client-ip', 'true-client-ip', 'x-client-ip', 'x-cluster-client-ip', 'cf-connecting-ip', 'fastly-client-ip',
    'proxy', 'x-middleware-rewrite', 'x-middleware-prefetch-x',
].map((name) => [name, 'hostile']));
const HARMLESS = { accept: 'text/html', 'x-csrftoken': 'c', 'x-requested-with': 'XMLHttpRequest', 'x-middleware-prefetch': '1', 'user-agent': 'u' };

const hostile = (headers) => Object.entries(headers).filter(([, value]) => value === 'hostile').map(([name]) => name);

test('a page request goes to the serving function without pass header', () => {
    const { headers, origin } = page({ headers: HARMLESS, cookies: { session: 's' } });
    assert.equal(origin, null);
    assert.deepEqual(headers, { ...HARMLESS, host: 'www.example.com', 'x-everfresh-host': 'www.example.com' });
});

test('hostile headers are removed from every request', () => {
    for (const request of [{}, { method: 'HEAD' }, { method: 'POST' }, { headers: { rsc: '1' } }, { uri: '/_everfresh/../x' }]) {
        for (const send of [page, app]) {
            const { headers } = send({ ...request, headers: { ...HOSTILE, ...HARMLESS, ...request.headers } });
            assert.deepEqual(hostile(headers), [], JSON.stringify(request));
            for (const name of Object.keys(HARMLESS)) assert.equal(headers[name], HARMLESS[name], name);
        }
    }
});

test('configured secret headers are removed from every request', () => {
    const given = { 'x-origin-verify': 'hostile', 'x-shop_token': 'hostile', 'x-origin-verify-2': 'kept', accept: 'text/html' };
    for (const request of [{}, { method: 'POST' }, { headers: { rsc: '1' } }, { uri: '/_everfresh/revalidate', method: 'POST' }]) {
        for (const send of [page, app]) {
            const { headers } = send({ ...request, headers: { ...given, ...request.headers }, SecretHeaders: 'x-origin-verify,x-shop-token' });
            assert.deepEqual(hostile(headers), [], JSON.stringify(request));
            assert.equal(headers['x-origin-verify-2'], 'kept');
        }
    }
});

test('both functions remove the same headers', () => {
    const [one, other] = ['viewer-page.js', 'viewer-app.js'].map((file) => code(file).match(/^const NEVER_FORWARDED = .*$/m)[0]);
    assert.equal(one, other);
});

test('methods other than GET and HEAD go to the app', () => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        const { headers, origin } = page({ method, headers: { 'if-match': '"1"' } });
        assert.deepEqual(origin, { id: 'app' });
        assert.equal(headers['x-everfresh-pass'], 'id-1');
        assert.equal(headers['x-forwarded-host'], 'www.example.com');
        assert.equal(headers['if-match'], '"1"');
    }
});

test('Authorization and pass_when headers go to the app without validators', () => {
    for (const name of ['authorization', 'rsc', 'next-action']) {
        const validators = { 'if-none-match': '"1"', 'if-modified-since': 'x', 'if-range': '"1"', range: 'bytes=0-1' };
        const { headers, origin } = page({ headers: { [name]: 'x', ...validators }, id: `id of ${name}` });
        assert.equal(origin.id, 'app', name);
        assert.equal(headers['x-everfresh-pass'], `id of ${name}`);
        assert.equal(headers[name], 'x');
        for (const validator of Object.keys(validators)) assert.equal(headers[validator], undefined);
    }
});

test('no header is listed: only method and Authorization decide', () => {
    assert.equal(page({ headers: { rsc: '1' }, PassWhen: '' }).origin, null);
    assert.equal(page({ headers: { authorization: 'x' }, PassWhen: '' }).origin.id, 'app');
});

test('without app origin passed reads go to the serving function', () => {
    const { headers, origin } = page({ headers: { rsc: '1' }, cookies: { 'everfresh-preview': 'p' }, AppOrigin: '' });
    assert.equal(origin, null);
    assert.equal(headers['x-everfresh-pass'], 'id-1');
    assert.equal(headers['x-forwarded-host'], undefined);
});

test('without app origin other methods get 405', () => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        const { returned } = page({ method, AppOrigin: '' });
        assert.equal(returned.statusCode, 405);
        assert.equal(returned.headers.allow.value, 'GET, HEAD');
        assert.match(returned.body.data, /AppOrigin/);
    }
});

test('the app receives its own host, or the site\'s if so configured', () => {
    assert.deepEqual(page({ method: 'POST' }).origin, { id: 'app' });
    const { origin, headers } = page({ method: 'POST', AppOriginHost: 'site', headers: { host: 'www.example.com:443' } });
    assert.equal(origin.hostHeader, 'www.example.com');
    assert.equal(headers['x-forwarded-host'], 'www.example.com:443');
});

test('the preview cookie reaches the serving function only', () => {
    const cookies = { 'everfresh-preview': 'p', session: 's' };
    assert.deepEqual(page({ cookies }).cookies, cookies);
    for (const { cookies: left } of [page({ cookies, method: 'POST' }), page({ cookies, headers: { rsc: '1' } }), app({ cookies })]) {
        assert.deepEqual(left, { session: 's' });
    }
});

test('a signed request keeps its signature and is not passed', () => {
    const signature = {
        'x-everfresh-key-id': 'k', 'x-everfresh-timestamp': '1', 'x-everfresh-nonce': 'n', 'x-everfresh-signature': 's',
        'x-amz-content-sha256': 'h', 'x-request-id': 'r',
    };
    for (const AppOrigin of ['', DEFAULTS.AppOrigin]) {
        for (const [method, uri] of [['POST', '/_everfresh/revalidate'], ['GET', '/_everfresh/status/page.5f0a.key']]) {
            const { headers, origin } = page({ method, uri, AppOrigin, headers: { ...HOSTILE, ...signature } });
            assert.equal(origin, null);
            assert.deepEqual(headers, { host: 'www.example.com', 'x-everfresh-host': 'www.example.com', ...signature });
        }
    }
});

test('a path that only looks signed is a page', () => {
    for (const uri of ['/_everfresh/../x', '/_everfresh/./x', '/_everfresh/%2e%2e/x', '/_everfresh//x', '/_everfresh/..\\x', '/x/_everfresh/y', '/_Everfresh/x']) {
        const { headers, origin } = page({ method: 'POST', uri, headers: { 'x-everfresh-signature': 'hostile' } });
        assert.equal(origin?.id, 'app', uri);
        assert.deepEqual(hostile(headers), [], uri);
    }
});

test('a request to the app carries the site\'s host and its validators', () => {
    const { headers, origin } = app({ headers: { 'if-none-match': '"1"', range: 'bytes=0-1', rsc: '1', authorization: 'a' } });
    assert.equal(origin, null);
    assert.deepEqual(headers, { host: 'www.example.com', 'if-none-match': '"1"', range: 'bytes=0-1', rsc: '1', authorization: 'a', 'x-forwarded-host': 'www.example.com' });
});
