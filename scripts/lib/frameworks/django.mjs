import assert from 'node:assert/strict'
import * as checks from './checks.mjs'
import { request } from './http.mjs'

export const needs = 'python-apps'
export const versions = ['django', 'gunicorn', 'whitenoise']

const USERS = ['alice', 'bob']
const PASSWORD = 'only for this example'

/** Makes the database, its users, and the folder of static files. */
export async function setUp({ python, run }) {
  await run([python, 'manage.py', 'migrate', '--verbosity', '0'])
  await run([python, 'manage.py', 'collectstatic', '--no-input', '--verbosity', '0'])
  for (const user of USERS) {
    await run([python, 'manage.py', 'createsuperuser', '--no-input', '--username', user, '--email', `${user}@shop.example`],
      { DJANGO_SUPERUSER_PASSWORD: PASSWORD })
  }
}

export const serve = ({ python, port, work }) =>
  [python, '-m', 'gunicorn', '--bind', `127.0.0.1:${port}`, '--threads', '8', '--no-control-socket', '--worker-tmp-dir', work, 'shop.wsgi']

export async function check(site) {
  await checks.pagesLoad(site, ['/', '/about/', '/article/', '/contact/', '/accounts/login/', '/secret/'])
  await checks.servedFromEverfresh(site, ['/', '/about/', '/article/'])
  await checks.logins(site, {
    account: '/account/',
    login: async (visitor, user) => {
      await visitor.open('/accounts/login/')
      await visitor.fill({ username: user, password: PASSWORD }, 'main button')
      await visitor.sees(`Account of ${user}`, 'h1')
    },
  })
  await admin(site)
  await checks.form(site, '/contact/', { fields: { message: 'hello' }, button: 'main button', answer: 'received: hello' })
  await withoutToken(site)
  await checks.image(site, '/')
  await checks.missing(site, '/no/such/page/', 'No such page here')
  await checks.redirect(site, '/old/', '/about/', 301)
  await checks.redirect(site, '/account/', '/accounts/login/', 302)
  await checks.severalCookies(site, ['csrftoken', 'sessionid'], () => login(site, 'alice'))
  await checks.asset(site, () => checks.assetOf(site, '/', /href="(\/static\/[^"]+\.css)"/))
  await checks.change(site, '/article/')
  await checks.takedowns(site, '/secret/', { login: 302, gone: 404, forbidden: 403 })
}

async function login(site, username) {
  const path = '/accounts/login/'
  const form = await request(site.pages, path)
  const token = form.text.match(/name="csrfmiddlewaretoken" value="([^"]+)"/)[1]
  return request(site.pages, path, {
    method: 'POST',
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      cookie: form.cookies.map((cookie) => cookie.split(';')[0]).join('; '),
    },
    body: new URLSearchParams({ csrfmiddlewaretoken: token, username, password: PASSWORD }).toString(),
  })
}

async function admin(site) {
  await site.check('admin: log in, add a group, find it, log out', () =>
    checks.visit(site, async (visitor) => {
      await visitor.open('/admin/')
      await visitor.fill({ username: 'alice', password: PASSWORD }, 'input[type=submit]')
      await visitor.sees('Site administration', 'h1')
      await visitor.open('/admin/auth/group/add/')
      await visitor.fill({ name: 'editors' }, 'input[name=_save]')
      await visitor.sees('was added successfully')
      await visitor.open('/admin/auth/group/')
      await visitor.sees('editors', '#result_list')
      await visitor.page.click('#logout-form button')
      await visitor.sees('Logged out', 'h1')
      await visitor.open('/admin/')
      assert.equal(visitor.pathname, '/admin/login/')
    }))
}

async function withoutToken(site) {
  await site.check('a form without its token is refused by the app', async () => {
    const answer = await request(site.pages, '/contact/', { method: 'POST', body: 'message=hello' })
    assert.equal(answer.status, 403)
  })
}
