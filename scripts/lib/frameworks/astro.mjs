import * as checks from './checks.mjs'
import { request } from './http.mjs'

export const versions = ['astro', '@astrojs/node']

export const build = ({ node, run }) => run([node, 'node_modules/astro/bin/astro.mjs', 'build'])

export const serve = ({ node }) => [node, 'dist/server/entry.mjs']

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
  await checks.asset(site, () => checks.assetOf(site, '/', /"(\/_astro\/[^"]+\.(?:js|css)[^"]*)"/))
  await checks.change(site, '/article')
  await checks.takedowns(site, '/secret', { login: 302, gone: 404, forbidden: 403 })
}
