'use client'

import { useActionState } from 'react'
import { send } from './send'

export default function Contact() {
  const [state, action, pending] = useActionState(send, {})
  return (
    <form action={action}>
      <h1>Contact</h1>
      <input name="message" />
      <button disabled={pending}>Send</button>
      <p id="answer">{state.answer}</p>
    </form>
  )
}
