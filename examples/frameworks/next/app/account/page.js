import { cookies } from 'next/headers'
import { redirect } from 'next/navigation'

export const metadata = { title: 'Account' }

export default async function Account() {
  const user = (await cookies()).get('user')?.value
  if (!user) redirect('/login')
  return <h1>Account of {user}</h1>
}
