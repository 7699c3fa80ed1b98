import Image from 'next/image'

// Built once: Next sends it with a lifetime of a year.
export default function Home() {
  return (
    <>
      <h1>Home</h1>
      <Image src="/photo.png" width={320} height={240} alt="a photo" priority />
    </>
  )
}
