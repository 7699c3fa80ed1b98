import { revalidatePath } from 'next/cache'

// On-demand revalidation. A real app checks a secret here.
export function POST(request) {
  revalidatePath(new URL(request.url).searchParams.get('path'))
  return Response.json({ revalidated: true })
}
