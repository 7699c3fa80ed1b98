// A static site with hundreds of assets: ETag, conditional requests, ranges and long lifetimes. It
// also echoes WebSocket messages.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'

const COUNT = 400
const IMMUTABLE = 'public, max-age=31536000, immutable'
const content = () => JSON.parse(readFileSync(process.env.CONTENT, 'utf8'))

const layout = (head, main) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Static site</title><link rel="icon" href="data:,">${head}</head>
<body><nav><a href="/">home</a> <a href="/about.html">about</a> <a href="/old">old</a></nav><main>${main}</main></body></html>
`

/** Asset number `i`: a style sheet, a script or a picture. */
function asset(i) {
  if (i % 4 === 0) return { name: `style-${i}.css`, type: 'text/css', body: `.c${i} { color: rgb(${i % 256}, 0, 0) }\n` }
  if (i % 4 === 1) {
    return { name: `script-${i}.js`, type: 'text/javascript', body: `window.loaded = (window.loaded ?? 0) + 1 // ${'x'.repeat(i)}\n` }
  }
  const body = `<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8" fill="hsl(${i},80%,50%)"/></svg>`
  return { name: `picture-${i}.svg`, type: 'image/svg+xml', body }
}

const assets = Array.from({ length: COUNT }, (_, i) => asset(i))
const files = new Map(assets.map(({ name, type, body }) => [`/assets/${name}`, { type, body, cacheControl: IMMUTABLE }]))

function tag({ name, type }) {
  const url = `/assets/${name}?v=2`
  if (type === 'text/css') return `<link rel="stylesheet" href="${url}">`
  if (type === 'text/javascript') return `<script src="${url}"></script>`
  return `<img src="${url}" width="8" height="8" alt="">`
}

function page(path) {
  if (path === '/') return layout('', `<h1>Home</h1>${assets.map(tag).join('\n')}`)
  if (path === '/about.html') return layout('', '<h1>About</h1>')
  if (path === '/article.html') return layout('', `<h1>${content().headline}</h1>`)
  if (path === '/secret.html' && content().secret === 'open') return layout('', '<h1>Secret plans</h1>')
}

function find(path) {
  const body = page(path)
  // As many static servers: no lifetime for pages.
  return body ? { type: 'text/html; charset=utf-8', body } : files.get(path)
}

function send(request, response, { type, body, cacheControl }, query) {
  const bytes = Buffer.from(body)
  const etag = `"${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}"`
  response.setHeader('etag', etag)
  response.setHeader('accept-ranges', 'bytes')
  // Shows which query arrived here.
  response.setHeader('x-query', query)
  if (cacheControl) response.setHeader('cache-control', cacheControl)
  if (request.headers['if-none-match'] === etag) return response.writeHead(304).end()
  response.setHeader('content-type', type)
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '')
  if (range) {
    const first = Number(range[1])
    const last = Math.min(range[2] === '' ? Infinity : Number(range[2]), bytes.length - 1)
    response.writeHead(206, { 'content-range': `bytes ${first}-${last}/${bytes.length}`, 'content-length': last - first + 1 })
    return response.end(bytes.subarray(first, last + 1))
  }
  response.writeHead(200, { 'content-length': bytes.length })
  response.end(request.method === 'HEAD' ? undefined : bytes)
}

const server = createServer((request, response) => {
  const { pathname, search } = new URL(request.url, 'http://site')
  const file = find(pathname)
  if (pathname === '/old') return response.writeHead(301, { location: '/about.html' }).end()
  if (pathname === '/secret.html' && content().secret === 'forbidden') {
    return response.writeHead(403, { 'content-type': 'text/plain' }).end('forbidden')
  }
  if (!file) {
    response.writeHead(404, { 'content-type': 'text/html; charset=utf-8' })
    return response.end(layout('', '<h1>No such page here</h1>'))
  }
  if (request.method !== 'GET' && request.method !== 'HEAD') return response.writeHead(405, { allow: 'GET, HEAD' }).end()
  send(request, response, file, search)
})

new WebSocketServer({ server, path: '/socket' }).on('connection', (socket) => {
  socket.on('message', (message, binary) => socket.send(message, { binary }))
})
server.listen(Number(process.env.PORT), process.env.HOST)
