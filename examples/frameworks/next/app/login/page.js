import { cookies } from 'next/headers'
import { redirect } from 'next/navigation'

async function login(form) {
  'use server'
  const jar = await cookies()
  jar.set('user', form.get('user'), { httpOnly: true, sameSite: 'lax' })
  jar.set('theme', 'dark')
  redirect('/account')
}

export default function Login() {
  return (
    <form action={login}>
      <h1>Login</h1>
      <input name="user" />
      <button>Log in</button>
    </form>
  )
}
