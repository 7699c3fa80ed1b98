import Link from 'next/link'

export const metadata = { title: 'Next.js behind Everfresh', icons: { icon: 'data:,' } }

export default function Layout({ children }) {
  return (
    <html lang="en">
      <body>
        <nav>
          <Link href="/">home</Link> <Link href="/about">about</Link> <Link href="/article">article</Link>{' '}
          <Link href="/account">account</Link> <Link href="/contact">contact</Link>
        </nav>
        <main>{children}</main>
      </body>
    </html>
  )
}
