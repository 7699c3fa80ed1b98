import assert from 'node:assert/strict'
import * as checks from './checks.mjs'
import { request } from './http.mjs'

export const versions = ['ws']

export const serve = ({ node }) => [node, 'server.mjs']

export async function check(site) {
  await coldAssets(site)
  await checks.pagesLoad(site, ['/', '/about.html', '/article.html', '/secret.html'])
  await checks.servedFromEverfresh(site, ['/', '/about.html', '/article.html'])
  await checks.asset(site, '/assets/script-1.js?v=2')
  await queriesAndRanges(site)
  await checks.missing(site, '/no/such/page', 'No such page here')
  await checks.missing(site, '/assets/no-such-script.js', 'No such page here')
  await checks.redirect(site, '/old', '/about.html', 301)
  await checks.change(site, '/article.html')
  await checks.takedowns(site, '/secret.html', { gone: 404, forbidden: 403 })
  await webSocket(site)
}

async function coldAssets(site) {
  await site.check('a page with 400 assets on a cold site: every asset arrives', () =>
    checks.visit(site, async (visitor) => {
      await visitor.open('/')
      const assets = visitor.answers.filter((answer) => answer.url().includes('/assets/'))
      assert.equal(assets.length, 400, 'assets')
      for (const answer of assets) assert.equal(answer.status(), 200, answer.url())
      assert.equal(await visitor.page.evaluate(() => window.loaded), 100, 'scripts that ran')
      const broken = await visitor.page.evaluate(() => [...document.images].filter((image) => !image.naturalWidth).length)
      assert.equal(broken, 0, 'broken pictures')
    }))
}

async function queriesAndRanges(site) {
  const path = '/assets/script-1.js'
  await site.check('an asset keeps its query, ranges and conditional requests', async () => {
    for (const query of ['?v=2', '?v=3', '?b=1&a=2', '']) {
      assert.equal((await request(site.pages, path + query)).headers['x-query'], query)
    }
    const whole = await request(site.pages, path)
    const part = await request(site.pages, path, { headers: { range: 'bytes=3-9' } })
    assert.equal(part.status, 206)
    assert.equal(part.text, whole.text.slice(3, 10))
    assert.equal(part.headers['content-range'], `bytes 3-9/${whole.bytes.length}`)
    const same = await request(site.pages, path, { headers: { 'if-none-match': whole.headers.etag } })
    assert.equal(same.status, 304)
    const head = await request(site.pages, path, { method: 'HEAD' })
    assert.deepEqual([head.status, head.headers['content-length'], head.text], [200, String(whole.bytes.length), ''])
  })
}

async function webSocket(site) {
  await site.check('WebSocket: a message is echoed', () =>
    checks.visit(site, async (visitor) => {
      await visitor.open('/about.html')
      const echoed = await visitor.page.evaluate(() => new Promise((resolve, reject) => {
        const socket = new WebSocket(`ws://${location.host}/socket`)
        setTimeout(() => reject(new Error('no echo in 5 s')), 5000)
        socket.onopen = () => socket.send('hello')
        socket.onmessage = ({ data }) => resolve(data)
        socket.onerror = () => reject(new Error('the socket is not opened'))
      }))
      assert.equal(echoed, 'hello')
    }))
}
