// What would hurt a reader: answers that are reused where the origin forbade it. The suite's own
// tests on this either count only under conditions, or (those with a disconnecting origin) cannot
// be passed by any cache, because they wait for an answer that the origin does not give.
import { setTimeout as sleep } from 'node:timers/promises'
import { randomUUID } from 'node:crypto'

const FRESH = 'max-age=3600'
const beyond = (directive) => ({
  what: `${directive}: not served stale while the origin disconnects`,
  first: { response_headers: [['Cache-Control', `max-age=2, ${directive}`]] },
  second: { disconnect: true },
  pause: 3_000,
})
const reused = (what, headers, more = {}) => ({ what: `${what}: not reused`, first: { response_headers: headers }, second: {}, ...more })

const CHECKS = [
  beyond('must-revalidate'),
  beyond('proxy-revalidate'),
  beyond('no-cache'),
  beyond('s-maxage=2'),
  reused('Cache-Control: no-cache', [['Cache-Control', `no-cache, ${FRESH}`]]),
  reused('CDN-Cache-Control: no-cache', [['Cache-Control', FRESH], ['CDN-Cache-Control', 'no-cache']]),
  reused('CDN-Cache-Control: no-store', [['Cache-Control', FRESH], ['CDN-Cache-Control', 'no-store']]),
  reused('Cache-Control: private', [['Cache-Control', `private, ${FRESH}`]]),
  reused('Vary: Accept-Language, for another language', [['Cache-Control', FRESH], ['Vary', 'Accept-Language']], {
    requests: [{ 'accept-language': 'en' }, { 'accept-language': 'de' }],
  }),
  reused('the answer to a request with Authorization', [['Cache-Control', FRESH]], { requests: [{ authorization: 'Basic YTpi' }, {}] }),
  {
    what: "Set-Cookie: not given to another reader",
    first: { response_headers: [['Cache-Control', FRESH], ['Set-Cookie', 'session=one']] },
    second: {},
    harmless: (answer) => !answer.headers.has('set-cookie'),
  },
]

async function check(fetch, base, { what, first, second, requests = [{}, {}], pause = 500, harmless }) {
  const uuid = randomUUID()
  const config = [first, second].map((each) => ({ ...each, id: what, name: what }))
  const headers = { 'content-type': 'application/json' }
  await fetch(`${base}/config/${uuid}`, { method: 'PUT', headers, body: JSON.stringify(config) })
  const get = (i) => fetch(`${base}/test/${uuid}`, { headers: [...Object.entries(requests[i]), ['Test-ID', what], ['Req-Num', String(i + 1)]] })
  const before = await get(0)
  if (before.status !== 200) return `the first answer has status ${before.status}`
  await before.text()
  await sleep(pause)
  let answer
  try {
    answer = await get(1)
    await answer.text()
  } catch {
    return true // A closed connection is the origin's own answer.
  }
  if (harmless?.(answer)) return true
  const count = answer.headers.get('server-request-count')
  if (second.disconnect) return answer.status >= 500 || `status ${answer.status} with the first answer's body`
  return count === '2' || `status ${answer.status} from answer ${count} of the origin`
}

/** Check → true, or what was seen. */
export async function checkReaders(fetch, base) {
  const seen = await Promise.all(CHECKS.map(async (each) => [each.what, await check(fetch, base, each)]))
  return Object.fromEntries(seen)
}
