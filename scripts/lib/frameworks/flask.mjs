import assert from 'node:assert/strict'
import * as checks from './checks.mjs'
import { request } from './http.mjs'

export const needs = 'python-apps'
export const versions = ['flask', 'gunicorn']

export const serve = ({ python, port, work }) =>
  [python, '-m', 'gunicorn', '--bind', `127.0.0.1:${port}`, '--threads', '8', '--no-control-socket', '--worker-tmp-dir', work, 'app:app']

const asForm = { 'content-type': 'application/x-www-form-urlencoded' }

export async function check(site) {
  await checks.pagesLoad(site, ['/', '/article', '/login', '/contact', '/secret'])
  await checks.servedFromEverfresh(site, ['/', '/article', '/login'])
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
  await checks.redirect(site, '/old', '/', 301)
  await checks.redirect(site, '/account', '/login', 302)
  await checks.severalCookies(site, ['seen', 'session', 'theme'], () =>
    request(site.pages, '/login', { method: 'POST', headers: asForm, body: 'user=carol' }))
  await checks.asset(site, '/static/style.css?v=2', { cacheControl: /no-cache/ })
  await site.check('an asset keeps its query', async () => {
    for (const query of ['v=2', 'v=3']) {
      const answer = await request(site.pages, `/photo.svg?${query}`)
      assert.equal(answer.headers['x-query'], query)
      assert.match(answer.headers['cache-control'], /immutable/)
    }
  })
  await checks.change(site, '/article')
  await checks.takedowns(site, '/secret', { login: 302, gone: 404, forbidden: 403, unauthorized: 401 })
}
