import { content } from '../../lib/content.mjs'

// Next keeps this page for a day.
export const revalidate = 86400

export default async function Catalog() {
  const { headline } = await content()
  return <h1>{headline}</h1>
}
