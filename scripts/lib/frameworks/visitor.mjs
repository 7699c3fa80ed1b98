// A visitor: a browser context of its own, which records everything that goes wrong in it.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export async function launch(tools, executablePath) {
  const { chromium } = createRequire(path.resolve(tools, 'package.json'))('playwright-core')
  const args = ['--disable-background-networking', '--disable-component-update', '--disable-sync']
  // Chromium refuses to start its sandbox as root.
  if (process.getuid() === 0) args.push('--no-sandbox')
  return chromium.launch({ executablePath, args })
}

export class Visitor {
  #expected = new Map()
  #problems = []
  #open = new Set()
  #moved = 0

  static async arrive(browser, base) {
    const visitor = new Visitor()
    visitor.base = base
    visitor.context = await browser.newContext({ baseURL: base })
    visitor.page = await visitor.context.newPage()
    visitor.#watch()
    return visitor
  }

  #watch() {
    this.documents = 0
    this.answers = []
    let loading = false
    const finished = new Set()
    this.page.on('request', (request) => {
      // A second request for what was just answered is the browser's own stale-while-revalidate,
      // of which no end is reported.
      if (!finished.has(request.url())) this.#open.add(request)
      this.#moved = Date.now()
      if (!request.isNavigationRequest() || request.frame() !== this.page.mainFrame()) return
      this.documents += 1
      loading = true
    })
    // Of what the document before had open, no end is reported. A navigation within a document
    // leaves its requests open.
    this.page.on('framenavigated', (frame) => {
      if (frame !== this.page.mainFrame() || !loading) return
      loading = false
      this.#open.clear()
      finished.clear()
    })
    const close = (request) => {
      this.#open.delete(request)
      finished.add(request.url())
      this.#moved = Date.now()
    }
    this.page.on('requestfinished', close)
    this.page.on('requestfailed', close)
    this.page.on('response', (response) => {
      this.answers.push(response)
      const { pathname } = new URL(response.url())
      if (response.status() >= 400 && this.#expected.get(pathname) !== response.status()) {
        this.#problems.push(`${response.status()} for ${response.request().method()} ${response.url()}`)
      }
    })
    this.page.on('requestfailed', (request) => {
      // A browser aborts what the next page does not need, such as a prefetch.
      const { errorText } = request.failure()
      if (errorText !== 'net::ERR_ABORTED') this.#problems.push(`${errorText} for ${request.url()}`)
    })
    this.page.on('pageerror', (error) => this.#problems.push(`exception: ${error.message}`))
    this.page.on('console', (message) => {
      // Chromium logs each status from 400 on, which is recorded above.
      const status = message.text().startsWith('Failed to load resource')
      if (message.type() === 'error' && !status) this.#problems.push(`console: ${message.text()}`)
    })
  }

  /** Opens a page by a full load, and waits until it needs nothing more. */
  async open(pathname, status = 200) {
    if (status >= 400) this.#expected.set(pathname, status)
    const response = await this.page.goto(pathname)
    await this.settled()
    assert.equal(response.status(), status, `status of ${pathname}`)
    return response
  }

  /** Waits until no request has been open for a moment. */
  async settled() {
    const end = Date.now() + 15_000
    while (this.#open.size > 0 || Date.now() - this.#moved < 300) {
      const urls = [...this.#open].map((request) => `${request.method()} ${request.url()}`)
      assert.ok(Date.now() < end, `still open after 15 s: ${urls}`)
      await sleep(50)
    }
  }

  get pathname() {
    return new URL(this.page.url()).pathname
  }

  text(selector = 'body') {
    return this.page.locator(selector).first().innerText()
  }

  /** Waits until an element contains the text. */
  async sees(text, selector = 'body', seconds = 10) {
    const place = this.page.locator(selector).filter({ hasText: text }).first()
    await place.waitFor({ timeout: seconds * 1000 }).catch(async () => {
      assert.fail(`${this.pathname} shows no "${text}" in ${selector}: ${(await this.text()).slice(0, 120)}`)
    })
  }

  async fill(fields, button) {
    for (const [name, value] of Object.entries(fields)) await this.page.fill(`[name=${name}]`, value)
    await this.page.click(button)
  }

  /** Throws if a request failed, or if a page reported an error. */
  async content() {
    await this.settled()
    assert.deepEqual(this.#problems, [], 'nothing fails')
  }

  async leave() {
    await this.context.close()
  }
}
