'use server'

export async function send(_previous, form) {
  return { answer: `received: ${form.get('message')}` }
}
