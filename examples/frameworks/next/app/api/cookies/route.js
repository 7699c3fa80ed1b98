export function GET() {
  const headers = new Headers({ 'cache-control': 'no-store' })
  for (const name of ['a', 'b', 'c']) headers.append('set-cookie', `${name}=1; Path=/; Expires=Wed, 01 Jan 2031 00:00:00 GMT`)
  return new Response('three cookies', { headers })
}
