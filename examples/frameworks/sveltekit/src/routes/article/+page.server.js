import { content } from '../../lib/server/content.js'

export async function load({ setHeaders }) {
  setHeaders({ 'cache-control': 'public, max-age=0, s-maxage=60, stale-while-revalidate=600', 'cache-tag': 'articles' })
  return { headline: (await content()).headline }
}
