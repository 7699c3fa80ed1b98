// Requests without a browser, where headers are looked at as they are on the wire.
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** One request on a connection of its own; redirects are not followed. */
export function request(base, path, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const sent = http.request(new URL(path, base), { method, headers, agent: false, timeout: 30_000 }, (answer) => {
      const chunks = []
      answer.on('error', reject)
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('end', () => {
        const bytes = Buffer.concat(chunks)
        resolve({
          status: answer.statusCode,
          headers: answer.headers,
          cookies: answer.headers['set-cookie'] ?? [],
          cacheStatus: answer.headers['cache-status'] ?? '',
          bytes,
          text: bytes.toString(),
        })
      })
    })
    sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: no answer in 30 s`)))
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Repeats `probe` until `done` accepts its value or the time is up; returns the last value. */
export async function until(seconds, probe, done) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(250)) {
    const value = await probe()
    if (done(value) || Date.now() >= end) return value
  }
}
