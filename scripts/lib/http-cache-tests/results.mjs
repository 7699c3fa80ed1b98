// Counts results as the suite's site does: a test whose dependency failed does not count.

const kindOf = (test) => test.kind ?? 'required'

export class Suite {
  constructor(groups) {
    this.groups = groups.map((group) => ({ ...group, tests: group.tests.filter((test) => !test.browser_only) }))
    this.tests = new Map(groups.flatMap(({ tests }) => tests).map((test) => [test.id, test]))
  }

  /** pass, fail, setup, dependency or untested. */
  verdict(id, results) {
    const test = this.tests.get(id)
    if (results[id] === undefined) return 'untested'
    if ((test.depends_on ?? []).some((needed) => this.verdict(needed, results) !== 'pass')) return 'dependency'
    if (results[id] === true) return 'pass'
    return results[id][0] === 'Setup' ? 'setup' : 'fail'
  }

  /** Per group and kind: how many tests there are, and how many count as passed; of those that
   * `counts`. */
  count(results, kind = 'required', counts = () => true) {
    return this.groups.map(({ id, tests }) => {
      const these = tests.filter((test) => kindOf(test) === kind && counts(test.id))
      return { group: id, tests: these.length, passed: these.filter((test) => this.verdict(test.id, results) === 'pass').length }
    }).filter(({ tests }) => tests > 0)
  }

  /** Tests of a kind that do not count as passed, with the reason. */
  lacking(results, kind = 'required') {
    return this.groups.flatMap(({ id: group, tests }) =>
      tests.filter((test) => kindOf(test) === kind).flatMap(({ id }) => {
        const verdict = this.verdict(id, results)
        if (verdict === 'pass') return []
        const reason = verdict === 'dependency' ? `needs ${this.missing(id, results)}` : (results[id]?.[1] ?? '')
        return [{ group, id, verdict, reason }]
      }))
  }

  missing(id, results) {
    return this.tests.get(id).depends_on.filter((needed) => this.verdict(needed, results) !== 'pass').join(', ')
  }
}
