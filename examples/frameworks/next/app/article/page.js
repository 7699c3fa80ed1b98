import { content } from '../../lib/content.mjs'

// Incremental static regeneration: Next renders it anew after five seconds, in the background.
export const revalidate = 5

export default async function Article() {
  const { headline } = await content()
  return (
    <>
      <h1>{headline}</h1>
      <p>rendered at {new Date().toISOString()}</p>
    </>
  )
}
