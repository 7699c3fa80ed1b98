export const actions = {
  default: async ({ request }) => ({ message: String((await request.formData()).get('message')) }),
}
