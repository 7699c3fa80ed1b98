// A proxy without a cache, in Everfresh's place: what fails behind it is no fault of Everfresh.
import http from 'node:http'
import net from 'node:net'

const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])

/** Names and values as they are on the wire, without the headers of this one connection. */
function endToEnd(raw) {
  const pairs = raw.flatMap((name, i) => (i % 2 === 0 ? [[name, raw[i + 1]]] : []))
  const listed = pairs.filter(([name]) => name.toLowerCase() === 'connection')
    .flatMap(([, value]) => value.split(',').map((name) => name.trim().toLowerCase()))
  return pairs.filter(([name]) => !HOP_BY_HOP.has(name.toLowerCase()) && !listed.includes(name.toLowerCase())).flat()
}

function pass(origin, request, response) {
  const forwarded = ['x-forwarded-for', request.socket.remoteAddress, 'x-forwarded-host', request.headers.host, 'x-forwarded-proto', 'http']
  const headers = [...endToEnd(request.rawHeaders), ...forwarded]
  // A body of unknown length stays one.
  if ('transfer-encoding' in request.headers) headers.push('transfer-encoding', 'chunked')
  const { hostname, port } = new URL(origin)
  const sent = http.request({ hostname, port, method: request.method, path: request.url, headers, agent: false })
  sent.on('response', (answer) => {
    answer.on('error', () => response.destroy())
    response.sendDate = false
    response.writeHead(answer.statusCode, answer.statusMessage, endToEnd(answer.rawHeaders))
    answer.pipe(response)
  })
  sent.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()))
  response.on('close', () => sent.destroy())
  request.pipe(sent)
}

function tunnel(origin, request, socket, head) {
  const { hostname, port } = new URL(origin)
  const other = net.connect({ host: hostname, port }, () => {
    const lines = request.rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${request.rawHeaders[i + 1]}`] : []))
    other.write([`${request.method} ${request.url} HTTP/1.1`, ...lines, '', ''].join('\r\n'))
    other.write(head)
    other.pipe(socket).pipe(other)
  })
  const end = () => [socket, other].forEach((side) => side.destroy())
  for (const side of [socket, other]) side.on('error', end).on('close', end)
}

/** Starts the proxy, on a free port unless one is given. */
export async function startProxy(origin, port = 0) {
  const server = http.createServer((request, response) => pass(origin, request, response))
  server.on('upgrade', (request, socket, head) => tunnel(origin, request, socket, head))
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: () => new Promise((resolve) => {
      server.close(resolve)
      server.closeAllConnections()
    }),
  }
}
