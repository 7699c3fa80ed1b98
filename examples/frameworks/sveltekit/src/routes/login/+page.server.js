import { redirect } from '@sveltejs/kit'

export const actions = {
  default: async ({ request, cookies }) => {
    const user = String((await request.formData()).get('user'))
    cookies.set('user', user, { path: '/', secure: false })
    cookies.set('theme', 'dark', { path: '/', secure: false })
    redirect(303, '/account')
  },
}
