// Runs the viewer functions in Node as CloudFront does. As a program: reads a list of {code, event}
// as JSON from standard input, and prints a list of what each returned and which origin it chose.
'use strict';

// A function sees none of the first, and must not change the second: CloudFront answers 502.
// https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/edge-function-restrictions-all.html
const HIDDEN = /^(connection|expect|keep-alive|proxy-(authenticate|authorization|connection)|trailer|upgrade|x-accel-.*|x-amz-cf-.*|x-amzn-(auth|cf-.*|errortype|fle-profile|header-.*|lambda-integration-tag|requestid)|x-cache|x-edge-.*|x-forwarded-proto|x-real-ip)$/;
const READ_ONLY = ['cdn-loop', 'content-length', 'host', 'transfer-encoding', 'via'];

function load(code, cf) {
    const body = code.replace("import cf from 'cloudfront';\n", '');
    return new Function('cf', `'use strict';\n${body}\nreturn handler;`)(cf);
}

function run(code, event) {
    const headers = event.request.headers;
    for (const name of Object.keys(headers)) if (HIDDEN.test(name)) delete headers[name];
    const before = JSON.parse(JSON.stringify(headers));
    let origin = null;
    const cf = {
        selectRequestOriginById(id, overrides = {}) { origin = { id, ...overrides }; },
    };
    const returned = load(code, cf)(event);
    if (!returned.statusCode) {
        for (const [name, header] of Object.entries(returned.headers)) {
            if (HIDDEN.test(name)) throw new Error(`the function adds ${name}, which CloudFront forbids`);
            if (typeof header.value !== 'string' || header.value === '') throw new Error(`${name} has no value`);
        }
        for (const name of READ_ONLY) {
            const after = returned.headers[name];
            if (JSON.stringify(before[name]) !== JSON.stringify(after)) throw new Error(`the function changes ${name}, which is read-only`);
        }
    }
    return { returned, origin };
}

module.exports = { run };

if (require.main === module) {
    const calls = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
    process.stdout.write(JSON.stringify(calls.map(({ code, event }) => run(code, event))));
}
