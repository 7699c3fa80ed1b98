// The suite's own server, in this process, and what it needs to know of a cache that renders.
//
// The suite's client numbers its requests (Req-Num) and its server decides by that number what to
// answer, and notes it, so that both can separate stored answers from new ones. Everfresh renders
// with a request of its own, without the reader's headers and perhaps after the reader's answer. So
// that such a request is counted as well:
//
// - A render has the number of the client's latest request, or, if the server has answered that one
//   already, of the next: of the request that gets what it renders. Another render for the same
//   request, after a failure or because the first was not stored, has the same number.
// - A render and a pass for the same request of the client (Everfresh learns from a render that the
//   answer must not be stored) are one request; the pass is noted, with the reader's headers.
//
// For all caches alike, the headers in WRITTEN, which Everfresh writes itself, are not required to
// arrive as the origin sent them in tests about something else. Tests about them are in
// not-applicable.txt.
import http from 'node:http'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const WRITTEN = new Set(['age', 'cache-control', 'cdn-cache-control', 'etag', 'expires', 'last-modified'])

export async function startOrigin(suite, { renders }) {
  const load = (file) => import(path.join(suite, file))
  const { default: handleConfig } = await load('server/handle-config.mjs')
  const { default: handleState } = await load('server/handle-state.mjs')
  const { default: handleTest } = await load('server/handle-test.mjs')
  const { stash } = await load('server/utils.mjs')
  const requests = new Requests(stash)
  const server = http.createServer((request, response) => {
    const [kind, ...rest] = new URL(request.url, 'http://origin').pathname.split('/').slice(1)
    if (kind === 'config') return handleConfig(rest, request, response)
    if (kind === 'state') return handleState(rest, request, response)
    if (kind !== 'test') return response.writeHead(404).end()
    if (renders) requests.number(rest[0], request, response)
    handleTest(rest, request, response)
    requests.noted(rest[0])
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${server.address().port}`, requests, stop: () => server.closeAllConnections() ?? server.close() }
}

/** The requests of the client and of the cache, by test. */
class Requests {
  #tests = new Map()

  constructor(stash) {
    this.stash = stash
  }

  #test(uuid) {
    if (!this.#tests.has(uuid)) this.#tests.set(uuid, { sent: 0, open: 0 })
    return this.#tests.get(uuid)
  }

  /** The client sends a request. */
  sent(uuid, number) {
    this.#test(uuid).sent = number
  }

  /** Waits until the renders that a request started have ended. */
  async settled(uuid) {
    const test = this.#test(uuid)
    for (const end = Date.now() + 5_000; Date.now() < end; ) {
      await sleep(300)
      if (test.open === 0) return
    }
  }

  number(uuid, request, response) {
    const test = this.#test(uuid)
    const { last } = test
    const render = !('req-num' in request.headers)
    // Tests that share a template also share its headers, so that a number may be repeated: "1, 1".
    let number = Number.parseInt(request.headers['req-num'])
    if (render) {
      number = Math.max(test.sent, last?.number ?? 0)
      if (last?.number === number && !last.failed && !last.ahead) number += 1
      request.headers['req-num'] = String(number)
    }
    // One request of the client is noted once.
    const noted = this.stash.get(uuid)
    if (last?.render && last.number === number && noted?.at(-1)?.request_num === number) noted.pop()
    // Ahead: the client has not sent the request that gets this.
    const current = { number, render, failed: false, ahead: number > test.sent }
    test.last = current
    test.open += 1
    response.on('close', () => {
      test.open -= 1
      current.failed = !response.writableFinished || response.statusCode >= 500
    })
  }

  noted(uuid) {
    const entry = this.stash.get(uuid)?.at(-1)
    if (entry) entry.response_headers = entry.response_headers.filter(([name]) => !WRITTEN.has(name.toLowerCase()))
  }
}
