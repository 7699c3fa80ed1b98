import node from '@astrojs/node'
import { defineConfig } from 'astro/config'

export default defineConfig({
  output: 'server',
  adapter: node({ mode: 'standalone' }),
  redirects: { '/old': { status: 301, destination: '/about' } },
  // Behind a proxy: the public host comes from its X-Forwarded-Host, which Astro accepts for these
  // hosts only. Its check of a form's Origin needs it.
  security: { allowedDomains: [{ hostname: '127.0.0.1' }, { hostname: 'localhost' }] },
})
