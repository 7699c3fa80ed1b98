// What is tested: each function starts one cache in front of an origin.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import path from 'node:path'
import { answering, freePort, start, stop } from '../frameworks/processes.mjs'
import { startProxy } from '../frameworks/proxy.mjs'

const here = import.meta.dirname

function configure(name, folder, values) {
  let text = readFileSync(path.join(here, name), 'utf8')
  for (const [key, value] of Object.entries(values)) text = text.replaceAll(`@${key}@`, value)
  const file = path.join(folder, name)
  writeFileSync(file, text)
  return file
}

async function daemon(name, file, folder, origin, command) {
  // A daemon that root starts drops its privileges.
  chmodSync(folder, 0o711)
  const port = await freePort()
  const values = { CACHE: String(port), ORIGIN: new URL(origin).port, DIR: folder }
  const config = configure(file, folder, values)
  const log = path.join(folder, `${name}.log`)
  const process = start(command(config, port), { log })
  const url = `http://127.0.0.1:${port}`
  await answering(`${url}/config/none`, process, log)
  return { url, stop: () => stop(process) }
}

export const caches = {
  none: (origin) => startProxy(origin),

  nginx: (origin, folder) =>
    daemon('nginx', 'nginx.conf', folder, origin, (config) => ['nginx', '-p', folder, '-c', config, '-e', 'stderr']),

  // The parameters with which the suite's authors run it.
  varnish: (origin, folder) =>
    daemon('varnish', 'varnish.vcl', folder, origin, (config, port) => [
      'varnishd', '-F', '-n', path.join(folder, 'varnish'), '-a', `127.0.0.1:${port}`, '-f', config, '-s', 'malloc,64M',
      '-T', 'none', '-p', 'default_ttl=0', '-p', 'default_grace=0', '-p', 'default_keep=3600',
    ]),

  everfresh: async (origin, folder, binary) => {
    const config = configure('everfresh.toml', folder, { ORIGIN: new URL(origin).port })
    const log = path.join(folder, 'everfresh.log')
    mkdirSync(path.join(folder, 'data'), { recursive: true })
    const command = [binary, 'dev', '--json', '--fresh', '--port', '0', '--data', path.join(folder, 'data'), '--config', config]
    const env = {
      // Each test reads a page of its own, and some change it at once.
      EVERFRESH_CACHE_TTL_MS: '0',
      EVERFRESH_ENQUEUES_PER_MINUTE: '100000',
    }
    const process = start(command, { env: { ...env, RUST_LOG: 'info' }, log, readOutput: true })
    const lines = createInterface({ input: process.stdout })
    const first = await Promise.race([lines[Symbol.asyncIterator]().next(), process.ended])
    if (!first?.value) throw new Error(`everfresh dev does not start: see ${log}`)
    process.stdout.resume()
    return { url: JSON.parse(first.value).pages, stop: () => stop(process) }
  },
}
