// The checks of scripts/frameworks: Chromium → everfresh dev → app, all on loopback.
import { cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { execFileSync } from 'node:child_process'
import path from 'node:path'
import { Checks } from './checks.mjs'
import { Everfresh } from './everfresh.mjs'
import { answering, freePort, run, start, stop, stopAll } from './processes.mjs'
import { startProxy } from './proxy.mjs'
import { launch } from './visitor.mjs'

const [binary, python, chromium, ...options] = process.argv.slice(2)
// A proxy without a cache in Everfresh's place.
const direct = options.includes('--direct')
const names = options.filter((option) => !option.startsWith('--'))
const root = path.resolve('target/frameworks')

async function versionsOf({ name, needs, versions }, folder) {
  if (needs === 'python-apps') {
    const script = 'import sys, importlib.metadata as m; print(" ".join(f"{n} {m.version(n)}" for n in sys.argv[1:]))'
    return execFileSync(python, ['-c', script, ...versions], { encoding: 'utf8' }).trim()
  }
  const read = async (module) => {
    const text = await readFile(path.join(folder, 'node_modules', module, 'package.json'), 'utf8')
    return `${module} ${JSON.parse(text).version}`
  }
  return (await Promise.all(versions.map(read))).join(' ') || name
}

/** Copies the app next to its packages, and builds it. */
async function prepare(app, { folder, content }) {
  const log = path.join(root, `${app.name}-build.log`)
  await rm(log, { force: true })
  await cp(path.join('examples/frameworks', app.name), folder, { recursive: true })
  if (!app.build) return
  for (const place of app.photo ?? ['public']) {
    await mkdir(path.join(folder, place), { recursive: true })
    await cp('examples/frameworks/photo.png', path.join(folder, place, 'photo.png'))
  }
  const env = { CONTENT: content, NEXT_TELEMETRY_DISABLED: '1', ASTRO_TELEMETRY_DISABLED: '1', NODE_ENV: 'production' }
  await app.build({ node: process.execPath, run: (command) => run(command, { cwd: folder, env, log }) })
}

async function checkApp(app, browser, report) {
  const folder = path.join(root, app.name)
  const work = path.join(root, `${app.name}-run`)
  await rm(work, { recursive: true, force: true })
  await mkdir(work, { recursive: true })
  const content = path.join(work, 'content.json')
  let values = { headline: 'first headline', secret: 'open' }
  await writeFile(content, JSON.stringify(values))
  await prepare(app, { folder, content })
  console.log(`\n${app.name}: ${await versionsOf(app, folder)}`)

  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  const log = path.join(work, 'app.log')
  const env = {
    CONTENT: content, PORT: String(port), HOST: '127.0.0.1', DATA: work,
    NODE_ENV: 'production', NEXT_TELEMETRY_DISABLED: '1', ASTRO_TELEMETRY_DISABLED: '1', PYTHONDONTWRITEBYTECODE: '1',
  }
  // The settings that an app needs behind any proxy.
  Object.assign(env, app.env)
  const command = app.serve({ node: process.execPath, python, port, folder, work })
  await app.setUp?.({ python, run: (command, more) => run(command, { cwd: folder, env: { ...env, ...more }, log }) })
  const server = start(command, { cwd: folder, env, log })
  let front
  try {
    await answering(origin, server, log)
    front = direct ? await startProxy(origin) : await Everfresh.start(binary, { origin, folder: work })
    const site = {
      name: app.name, browser, origin, direct, folder, work, node: process.execPath,
      pages: front.url,
      check: (what, test) => report.one(site, what, test),
      enqueue: async (path) => front.enqueue?.(path),
      setContent: async (changed) => {
        values = { ...values, ...changed }
        // The app may be reading it.
        await writeFile(`${content}.new`, JSON.stringify(values))
        await rename(`${content}.new`, content)
      },
      // Puts Everfresh, or the proxy, in front of another server of the app; with settings `config`
      // (a file) and `env`, if there are any.
      inFrontOf: (other, name, more = {}) =>
        direct ? startProxy(other) : Everfresh.start(binary, { ...more, origin: other, folder: path.join(work, name) }),
    }
    await app.check(site)
  } finally {
    await front?.stop()
    await stop(server)
  }
}

for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(name, () => stopAll().then(() => process.exit(130)))
}
const report = new Checks()
const browser = await launch('target/browser', chromium)
try {
  console.log(`Node.js ${process.versions.node}, Chromium ${browser.version()}`)
  for (const name of names) {
    const app = { name, ...(await import(`./${name}.mjs`)) }
    try {
      await checkApp(app, browser, report)
    } catch (error) {
      // An app that cannot be built or started: the others still run.
      await report.one({ name }, 'the app starts', () => { throw error })
    }
  }
} finally {
  await browser.close()
  await stopAll()
}
console.log(`\n${report.passed} passed, ${report.failed} failed`)
process.exitCode = report.failed ? 1 : 0
