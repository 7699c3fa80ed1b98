import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as checks from './checks.mjs'
import { request, until } from './http.mjs'
import { answering, freePort, start, stop } from './processes.mjs'

export const versions = ['@sveltejs/kit', '@sveltejs/adapter-node', 'svelte', 'vite']
export const photo = ['static']

export const build = ({ node, run }) => run([node, 'node_modules/vite/bin/vite.js', 'build'])

export const serve = ({ node }) => [node, 'build/index.js']

// Behind a proxy: SvelteKit compares a form's Origin with the public address, which it takes from
// these headers.
export const env = { PROTOCOL_HEADER: 'x-forwarded-proto', HOST_HEADER: 'x-forwarded-host' }

const asForm = { 'content-type': 'application/x-www-form-urlencoded' }

export async function check(site) {
  await checks.pagesLoad(site, ['/', '/about', '/article', '/contact', '/login', '/secret'])
  await checks.servedFromEverfresh(site, ['/', '/about', '/article'])
  await checks.clientNavigation(site, '/', [
    { link: 'about', heading: 'About' },
    { link: 'article', heading: 'first headline' },
    { link: 'home', heading: 'Home' },
    { link: 'account', heading: 'Login' },
  ])
  await checks.logins(site, {
    account: '/account',
    login: async (visitor, user) => {
      await visitor.open('/login')
      await visitor.fill({ user }, 'main button')
      await visitor.sees(`Account of ${user}`, 'h1')
    },
  })
  await checks.form(site, '/contact', { fields: { message: 'hello' }, button: 'main button', answer: 'received: hello' })
  await checks.image(site, '/')
  await checks.missing(site, '/no/such/page', 'No such page here')
  await checks.redirect(site, '/old', '/about', 301)
  await checks.severalCookies(site, ['theme', 'user'], () =>
    request(site.pages, '/login', { method: 'POST', headers: { ...asForm, origin: site.pages }, body: 'user=carol' }))
  await checks.asset(site, () => checks.assetOf(site, '/', /"\.?(\/_app\/immutable\/[^"]+\.js)"/))
  await checks.change(site, '/article')
  await checks.takedowns(site, '/secret', { login: 302, gone: 404, forbidden: 403 })
  await developmentServer(site)
}

/** Vite's development server, whose browser part waits on a WebSocket for changes. */
async function developmentServer(site) {
  await site.check('vite dev: a change of the source arrives over the WebSocket, without a reload', async () => {
    const port = await freePort()
    const origin = `http://127.0.0.1:${port}`
    const log = path.join(site.work, 'vite.log')
    const command = [site.node, 'node_modules/vite/bin/vite.js', 'dev', '--host', '127.0.0.1', '--port', String(port), '--strictPort']
    const env = { CONTENT: path.join(site.work, 'content.json'), NODE_ENV: 'development' }
    const server = start(command, { cwd: site.folder, env, log })
    let front
    try {
      await answering(origin, server, log)
      front = await site.inFrontOf(origin, 'vite')
      await checks.visit({ ...site, pages: front.url }, (visitor) => editInVite(site, visitor, front.url))
    } finally {
      await front?.stop()
      await stop(server)
    }
  })
}

async function editInVite(site, visitor, pages) {
  const sockets = []
  visitor.page.on('websocket', (socket) => {
    const seen = { url: socket.url(), frames: 0 }
    sockets.push(seen)
    socket.on('framereceived', () => (seen.frames += 1))
  })
  // The first load may be repeated when Vite has found the packages to bundle.
  await visitor.open('/about')
  await visitor.page.waitForTimeout(2_000)
  await visitor.open('/about')
  await visitor.sees('About', 'h1')
  const here = pages.replace('http', 'ws')
  await until(10, () => sockets, () => sockets.some(({ url, frames }) => url.startsWith(here) && frames > 0))
  assert.ok(sockets.some(({ url, frames }) => url.startsWith(here) && frames > 0), `WebSockets: ${JSON.stringify(sockets)}`)
  const file = path.join(site.folder, 'src/routes/about/+page.svelte')
  await visitor.page.evaluate(() => (window.mark = 'kept'))
  await writeFile(file, (await readFile(file, 'utf8')).replace('About', 'Edited'))
  await visitor.sees('Edited', 'h1')
  assert.equal(await visitor.page.evaluate(() => window.mark), 'kept', 'the window is the same')
}
