import { notFound, redirect } from 'next/navigation'
import { content } from '../../lib/content.mjs'

export const revalidate = 5

// A page that an editor can take down.
export default async function Secret() {
  const { secret } = await content()
  if (secret === 'login') redirect('/login')
  if (secret === 'gone') notFound()
  return <h1>Secret plans</h1>
}
