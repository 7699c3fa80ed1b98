// The checks that several apps share. Each prints one line.
import assert from 'node:assert/strict'
import { request, until } from './http.mjs'
import { Visitor } from './visitor.mjs'

/** How long a change may take to be visible after its request. */
const VISIBLE_SECONDS = 20

export class Checks {
  passed = 0
  failed = 0

  async one(site, what, test) {
    const from = Date.now()
    let problem
    try {
      await test()
      this.passed += 1
    } catch (error) {
      problem = String(error.message ?? error).replace(/\u001b\[\d+m/g, '').replace(/\s+/g, ' ').slice(0, 300)
      this.failed += 1
    }
    const seconds = ((Date.now() - from) / 1000).toFixed(1)
    console.log(`${problem ? 'FAIL' : 'ok  '} ${site.name.padEnd(9)} ${what} (${seconds} s)${problem ? `: ${problem}` : ''}`)
  }
}

/** Runs `test` with a new visitor, and throws if anything failed in the visitor's browser. */
export async function visit(site, test) {
  const visitor = await Visitor.arrive(site.browser, site.pages)
  try {
    await test(visitor)
    await visitor.content()
  } finally {
    await visitor.leave()
  }
}

export const isHit = (answer) => /^everfresh; *hit\b/.test(answer.cacheStatus)

export async function pagesLoad(site, paths) {
  await site.check(`${paths.length} pages load with no failed request`, () =>
    visit(site, async (visitor) => {
      for (const path of paths) {
        await visitor.open(path)
        assert.notEqual((await visitor.text('h1')).trim(), '', `${path} has a heading`)
      }
    }))
}

export async function servedFromEverfresh(site, paths) {
  await site.check(`anonymous pages are served from Everfresh on the second read: ${paths.join(' ')}`, async () => {
    if (site.direct) return
    for (const path of paths) {
      // The first read may be answered by the app while the page is rendered.
      const first = await request(site.pages, path)
      assert.equal(first.status, 200, `status of ${path}`)
      const second = await until(5, () => request(site.pages, path), isHit)
      assert.ok(isHit(second), `${path}: cache-status ${second.cacheStatus}`)
      assert.deepEqual(second.cookies, [], `${path}: set-cookie`)
    }
  })
}

export async function clientNavigation(site, from, steps) {
  await site.check(`client navigation without a full load: ${steps.map(({ link }) => link).join(', ')}`, () =>
    visit(site, async (visitor) => {
      await visitor.open(from)
      await visitor.page.evaluate(() => (window.mark = 'kept'))
      for (const { link, heading } of steps) {
        await visitor.page.click(`nav a:text-is("${link}")`)
        await visitor.sees(heading, 'h1')
      }
      assert.equal(await visitor.page.evaluate(() => window.mark), 'kept', 'the window is the same')
      assert.equal(visitor.documents, 1, 'documents loaded')
    }))
}

/** `login(visitor, user)` leaves the visitor on their account, whose heading names them. */
export async function logins(site, { account, login, heading = 'h1' }) {
  await site.check('login: each of two visitors sees only their own account', async () => {
    const names = ['alice', 'bob']
    const visitors = await Promise.all(names.map(() => Visitor.arrive(site.browser, site.pages)))
    try {
      await Promise.all(visitors.map((visitor, i) => login(visitor, names[i])))
      for (let round = 0; round < 5; round += 1) {
        await Promise.all(visitors.map(async (visitor, i) => {
          await visitor.open(account)
          const seen = await visitor.text(heading)
          assert.ok(seen.includes(names[i]) && !seen.includes(names[1 - i]), `${names[i]} sees "${seen}"`)
        }))
      }
      // From a page that all visitors share, by the framework's own navigation: it fetches
      // data of the account, with the visitor's cookies.
      for (const [i, visitor] of visitors.entries()) {
        await visitor.open('/')
        await visitor.page.click('nav a:text-is("account")')
        await visitor.sees(names[i], heading)
        await visitor.content()
      }
      // At the same time, on plain connections, with the cookies of both and with none.
      const jars = await Promise.all(visitors.map(async (visitor) =>
        (await visitor.context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ')))
      const readers = Array.from({ length: 30 }, async (_, i) => {
        const cookie = jars[i % 3]
        const answer = await request(site.pages, account, { headers: cookie ? { cookie } : {} })
        names.forEach((name, owner) => {
          assert.equal(answer.text.includes(name), i % 3 === owner, `reader ${i % 3} and ${name}, ${answer.status}`)
        })
        assert.ok(!isHit(answer), 'an account is not stored')
      })
      await Promise.all(readers)
    } finally {
      for (const visitor of visitors) await visitor.leave()
    }
  })
}

export async function form(site, path, { fields, button, answer, selector = '#answer' }) {
  await site.check(`form: POST ${path}`, () =>
    visit(site, async (visitor) => {
      await visitor.open(path)
      await visitor.fill(fields, button)
      await visitor.sees(answer, selector)
    }))
}

export async function image(site, path, selector = 'main img') {
  await site.check(`image on ${path}`, () =>
    visit(site, async (visitor) => {
      await visitor.open(path)
      const width = await visitor.page.locator(selector).first().evaluate(async (image) => {
        await image.decode()
        return image.naturalWidth
      })
      assert.ok(width > 0, 'the image has a width')
    }))
}

export async function missing(site, path, heading) {
  await site.check(`404: ${path} is the app's own`, () =>
    visit(site, async (visitor) => {
      await visitor.open(path, 404)
      await visitor.sees(heading, 'h1')
      assert.equal((await visitor.page.reload()).status(), 404)
    }))
}

export async function redirect(site, from, to, status) {
  await site.check(`redirect: ${from} → ${to} (${status})`, async () => {
    const answer = await request(site.pages, from)
    assert.equal(answer.status, status)
    const target = new URL(answer.headers.location, site.pages)
    assert.equal(target.origin, new URL(site.pages).origin, 'the visitor stays on this host')
    await visit(site, async (visitor) => {
      await visitor.open(from)
      assert.equal(visitor.pathname, to)
    })
  })
}

/** `send` requests an answer with several Set-Cookie headers. */
export async function severalCookies(site, names, send) {
  await site.check(`${names.length} Set-Cookie headers stay apart`, async () => {
    for (let round = 0; round < 2; round += 1) {
      const { cookies } = await send()
      assert.deepEqual(cookies.map((cookie) => cookie.split('=')[0]).sort(), [...names].sort())
      assert.ok(cookies.every((cookie) => /path=\//i.test(cookie)), 'attributes are kept')
    }
  })
}

/** An asset arrives with the app's own headers and bytes. */
export async function asset(site, path, { cacheControl = /immutable/ } = {}) {
  await site.check('assets keep the cache headers, validators and bytes of the app', async () => {
    const requested = typeof path === 'function' ? await path() : path
    const theirs = await request(site.origin, requested)
    const seen = await request(site.pages, requested)
    assert.equal(theirs.status, 200, `${requested} of the app`)
    assert.match(theirs.headers['cache-control'] ?? '', cacheControl)
    assert.equal(seen.status, 200)
    for (const name of ['cache-control', 'content-type', 'etag', 'last-modified']) {
      assert.equal(seen.headers[name], theirs.headers[name], name)
    }
    assert.ok(seen.bytes.equals(theirs.bytes), 'the bytes are the same')
  })
}

/** The first asset with this ending that a page refers to, with its query. */
export async function assetOf(site, path, pattern) {
  const page = await request(site.origin, path)
  const found = page.text.match(pattern)
  assert.ok(found, `${path} refers to ${pattern}`)
  return found[1].replaceAll('&amp;', '&')
}

/** A change of the source, with a request, is visible within seconds. */
export async function change(site, path) {
  await site.check(`a change of ${path} is visible after enqueue`, async () => {
    for (const headline of ['second headline', 'third headline']) {
      await site.setContent({ headline })
      await site.enqueue(path)
      const seen = await until(VISIBLE_SECONDS, () => request(site.pages, path), ({ text }) => text.includes(headline))
      assert.equal(seen.status, 200)
      assert.ok(seen.text.includes(headline), `${path} shows no "${headline}": ${seen.cacheStatus}`)
    }
    await visit(site, async (visitor) => {
      await visitor.open(path)
      await visitor.sees('third headline', 'h1')
    })
  })
}

/** A published page that the app answers with one of these statuses afterwards disappears. */
export async function takedowns(site, path, statuses) {
  const text = 'Secret plans'
  for (const [word, status] of Object.entries(statuses)) {
    await site.check(`takedown: ${path} from 200 to ${status} disappears after enqueue`, async () => {
      await site.setContent({ secret: 'open' })
      await site.enqueue(path)
      const published = await until(VISIBLE_SECONDS, () => request(site.pages, path), (answer) =>
        answer.text.includes(text) && (site.direct || isHit(answer)))
      assert.ok(published.text.includes(text), `not published first: ${published.status} ${published.cacheStatus}`)
      await site.setContent({ secret: word })
      await site.enqueue(path)
      const seen = await until(VISIBLE_SECONDS, () => request(site.pages, path), (answer) => answer.status === status)
      assert.equal(seen.status, status, `cache-status ${seen.cacheStatus}`)
      assert.ok(!seen.text.includes(text), 'the body is gone')
      for (let reads = 0; reads < 10; reads += 1) {
        assert.ok(!(await request(site.pages, path)).text.includes(text), 'it does not come back')
      }
    })
  }
  await site.check(`takedown: ${path} comes back`, async () => {
    await site.setContent({ secret: 'open' })
    await site.enqueue(path)
    const seen = await until(VISIBLE_SECONDS, () => request(site.pages, path), (answer) => answer.text.includes(text))
    assert.equal(seen.status, 200)
  })
}
