import { error, redirect } from '@sveltejs/kit'
import { content } from '../../lib/server/content.js'

// A page that an editor can take down.
export async function load() {
  const { secret } = await content()
  if (secret === 'login') redirect(302, '/login')
  if (secret === 'gone') error(404, 'Not found')
  if (secret === 'forbidden') error(403, 'Forbidden')
}
