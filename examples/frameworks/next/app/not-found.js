export default function NotFound() {
  return <h1>No such page here</h1>
}
