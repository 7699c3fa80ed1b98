export default {
  redirects: async () => [{ source: '/old', destination: '/about', permanent: true }],
}
