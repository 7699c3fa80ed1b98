import { redirect } from '@sveltejs/kit'

export function load({ cookies, setHeaders }) {
  const user = cookies.get('user')
  if (!user) redirect(302, '/login')
  setHeaders({ 'cache-control': 'private, no-store' })
  return { user }
}
