// Runs the suite against one cache, in a process of its own because the suite keeps its results in
// the process.
//
//     node target.mjs CACHE SUITE FOLDER BINARY [TEST]
import { createRequire } from 'node:module'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { stopAll } from '../frameworks/processes.mjs'
import { caches } from './caches.mjs'
import { startOrigin } from './origin.mjs'
import { checkReaders } from './readers.mjs'

const [name, suite, folder, binary, only] = process.argv.slice(2)
/** Tests at the same time. Each has addresses of its own. */
const AT_ONCE = 40

// The suite prints to standard output.
console.log = console.error
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => stopAll().then(() => process.exit(130)))

rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
const renders = name === 'everfresh'
const origin = await startOrigin(suite, { renders })
const { default: groups } = await import(path.join(suite, 'tests/index.mjs'))
const { runTests, getResults } = await import(path.join(suite, 'client/runner.mjs'))
const fetch = createRequire(path.join(suite, 'package.json'))('node-fetch')
try {
  const cache = await caches[name](origin.url, folder, binary)

  /** /config and /state are the suite's own channel to its server: they bypass the cache. */
  async function split(url, init = {}) {
    const [kind, uuid] = new URL(url).pathname.split('/').slice(1)
    if (kind !== 'test') return fetch(url.replace(cache.url, origin.url), init)
    const number = init.headers.find(([header]) => header === 'Req-Num')[1]
    origin.requests.sent(uuid, Number(number))
    const answer = await fetch(url, init)
    // What a request starts ends before the next one: the suite knows no renders in the background.
    if (renders) await origin.requests.settled(uuid)
    return answer
  }

  const chosen = only ? groups.map((group) => ({ ...group, tests: group.tests.filter(({ id }) => id === only) })) : groups
  if (only) for (const test of chosen.flatMap(({ tests }) => tests)) test.dump = true
  await runTests(chosen, split, false, cache.url, AT_ONCE)
  const readers = only ? {} : await checkReaders(split, cache.url)
  await cache.stop()
  writeFileSync(path.join(folder, 'results.json'), JSON.stringify({ suite: getResults(), readers }, null, 1))
} finally {
  await stopAll()
}
process.exit(0)
