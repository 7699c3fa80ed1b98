import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as checks from './checks.mjs'
import { request, until } from './http.mjs'

export const versions = ['next', 'react', 'sharp']

export async function build({ node, run }) {
  await run([node, 'node_modules/next/dist/bin/next', 'build'])
}

export const serve = ({ node, port }) =>
  [node, 'node_modules/next/dist/bin/next', 'start', '--hostname', '127.0.0.1', '--port', String(port)]

export async function check(site) {
  await checks.pagesLoad(site, ['/', '/about', '/article', '/contact', '/login', '/secret'])
  await checks.servedFromEverfresh(site, ['/', '/about', '/article'])
  await checks.clientNavigation(site, '/', [
    { link: 'about', heading: 'About' },
    { link: 'article', heading: 'first headline' },
    { link: 'home', heading: 'Home' },
    { link: 'account', heading: 'Login' },
  ])
  await serverComponents(site)
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
  await negotiatedImage(site)
  await checks.missing(site, '/no/such/page', 'No such page here')
  await checks.redirect(site, '/old', '/about', 308)
  await checks.severalCookies(site, ['a', 'b', 'c'], () => request(site.pages, '/api/cookies'))
  await checks.asset(site, () => checks.assetOf(site, '/', /src="(\/_next\/static\/[^"]+\.js[^"]*)"/))
  await checks.change(site, '/article')
  await onDemand(site)
  await revalidationSecret(site)
  await checks.takedowns(site, '/secret', { login: 307, gone: 404 })
}

async function serverComponents(site) {
  await site.check('a request with RSC gets a payload, one without gets HTML', () =>
    checks.visit(site, async (visitor) => {
      await visitor.open('/')
      await visitor.page.hover('nav a:text-is("about")')
      await visitor.page.click('nav a:text-is("about")')
      await visitor.sees('About', 'h1')
      const payloads = visitor.answers.filter((answer) => 'rsc' in answer.request().headers())
      assert.ok(payloads.length > 0, 'the browser requested payloads')
      for (const answer of payloads) {
        const { pathname } = new URL(answer.url())
        assert.match(answer.headers()['content-type'] ?? '', /^text\/x-component/, `type of ${pathname} with RSC`)
      }
      const page = await request(site.pages, '/about')
      assert.match(page.headers['content-type'], /^text\/html/)
    }))
}

async function negotiatedImage(site) {
  await site.check('/_next/image follows Accept', async () => {
    const path = '/_next/image?url=%2Fphoto.png&w=384&q=75'
    for (const [accept, type] of [['image/webp,*/*', 'image/webp'], ['image/png', 'image/png'], ['image/webp,*/*', 'image/webp']]) {
      const answer = await request(site.pages, path, { headers: { accept } })
      assert.equal(answer.status, 200)
      assert.equal(answer.headers['content-type'], type, `type for Accept: ${accept}`)
    }
  })
}

async function onDemand(site) {
  await site.check('on-demand revalidation, then enqueue', async () => {
    await site.setContent({ headline: 'on demand' })
    const answer = await request(site.pages, '/api/revalidate?path=/article', { method: 'POST' })
    assert.equal(answer.status, 200)
    await site.enqueue('/article')
    await checks.visit(site, async (visitor) => {
      for (const end = Date.now() + 10_000; ; ) {
        await visitor.open('/article')
        if ((await visitor.text('h1')) === 'on demand') break
        assert.ok(Date.now() < end, 'the change is not visible')
      }
    })
  })
}

/** Next's own secret on renders, by `render_headers`: they go past Next's cache. */
async function revalidationSecret(site) {
  await site.check('x-prerender-revalidate on renders: a page that Next keeps for a day is new after enqueue', async () => {
    if (site.direct) return
    const config = path.join(site.work, 'secret.toml')
    const manifest = path.join(site.folder, '.next/prerender-manifest.json')
    const { preview } = JSON.parse(await readFile(manifest, 'utf8'))
    await writeFile(config, `
[tenant.shop]
hosts   = ["127.0.0.1"]
render  = { http = "${site.origin}" }
presets = ["next"]
render_headers = { x-prerender-revalidate = { env = "NEXT_PREVIEW_ID" } }
[[tenant.shop.route]]
path       = "/{*rest}"
revalidate = "1h"
`)
    const front = await site.inFrontOf(site.origin, 'secret', { config, env: { NEXT_PREVIEW_ID: preview.previewModeId } })
    try {
      for (const headline of ['with the secret', 'once more']) {
        await site.setContent({ headline })
        const kept = await request(site.origin, '/catalog')
        assert.ok(!kept.text.includes(headline), 'Next does not keep its page')
        await front.enqueue('/catalog')
        const seen = await until(15, () => request(front.url, '/catalog'), ({ text }) => text.includes(headline))
        assert.ok(seen.text.includes(headline), `the change is not visible: ${seen.cacheStatus}`)
        const again = await until(5, () => request(front.url, '/catalog'), checks.isHit)
        assert.ok(checks.isHit(again) && again.text.includes(headline), `not stored: ${again.cacheStatus}`)
        // A visitor's own header of this name does not reach the app.
        const passed = await request(front.url, '/api/cookies', { headers: { 'x-prerender-revalidate': preview.previewModeId } })
        assert.notEqual(passed.headers['x-nextjs-cache'], 'REVALIDATED')
      }
    } finally {
      await front.stop()
    }
  })
}
