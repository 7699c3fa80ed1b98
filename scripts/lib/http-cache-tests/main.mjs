// The table of scripts/http-cache-tests.
import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Suite } from './results.mjs'

const here = import.meta.dirname
const [suiteFolder, binary, ...options] = process.argv.slice(2)
const suite = path.resolve(suiteFolder)
const option = (name) => (options.includes(name) ? options[options.indexOf(name) + 1] : undefined)
const json = options.includes('--json')
const only = option('--test')
const names = option('--only') ? [option('--only')] : ['none', 'nginx', 'varnish', 'everfresh']
const root = path.resolve('target/http-cache-tests-run')
if (!names.every((name) => ['none', 'nginx', 'varnish', 'everfresh'].includes(name))) {
  console.error(`no such cache: ${names}`)
  process.exit(2)
}

const children = new Set()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    for (const child of children) child.kill('SIGTERM')
    process.exitCode = 130
  })
}

/** Runs the suite against one cache, and returns its results by test. */
async function run(name) {
  const folder = path.join(root, name)
  const script = [path.join(here, 'target.mjs'), name, suite, folder, binary, ...(only ? [only] : [])]
  mkdirSync(root, { recursive: true })
  const log = path.join(root, `${name}.log`)
  const output = openSync(log, 'w')
  const child = spawn(process.execPath, ['--no-warnings', ...script], { stdio: ['ignore', 'ignore', only ? 'inherit' : output] })
  closeSync(output)
  children.add(child)
  const code = await new Promise((resolve) => child.once('exit', resolve))
  children.delete(child)
  if (code !== 0) throw new Error(`the suite did not run against ${name}: see ${log}`)
  return JSON.parse(readFileSync(path.join(folder, 'results.json'), 'utf8'))
}

/** Test → reason, from lines "id: reason". */
function notApplicable() {
  const lines = readFileSync(path.join(here, 'not-applicable.txt'), 'utf8').split('\n')
  return new Map(lines.filter((line) => line && !line.startsWith('#')).map((line) => {
    const [id, ...reason] = line.split(': ')
    return [id, reason.join(': ')]
  }))
}

/** What would hurt a reader, by cache. */
function readersTable() {
  const [first] = names
  console.log(`\n${'what would hurt a reader'.padEnd(70)}${names.map((name) => name.padStart(10)).join('')}`)
  for (const what of Object.keys(readers[first])) {
    console.log(what.padEnd(70) + names.map((name) => (readers[name][what] === true ? 'ok' : 'FAIL').padStart(10)).join(''))
  }
}

function table(counts) {
  const width = 10
  const row = (cells) => cells.map((cell, i) => (i ? String(cell).padStart(width) : String(cell).padEnd(18))).join('')
  console.log(`\n${row(['required tests', 'tests', ...names])}`)
  for (const [i, { group, tests }] of counts[0].entries()) console.log(row([group, tests, ...counts.map((count) => count[i].passed)]))
  console.log(row(['all', sum(counts[0], 'tests'), ...counts.map((count) => sum(count, 'passed'))]))
}

const sum = (count, field) => count.reduce((total, entry) => total + entry[field], 0)
const of = (name, field = 'passed') => sum(counts[names.indexOf(name)], field)

/** Groups in which both other caches pass more of the tests that apply to Everfresh. */
function behindBoth() {
  const applicable = names.map((name) => judge.count(results[name], 'required', (id) => !reasons.has(id)))
  const passed = (name, group) => applicable[names.indexOf(name)].find((entry) => entry.group === group)?.passed ?? 0
  return counts[0].map(({ group }) => group)
    .filter((group) => passed('everfresh', group) < Math.min(passed('nginx', group), passed('varnish', group)))
}

/** One line for docs/evidence.md. */
function summary(lacking) {
  const [passed, tests] = [of('everfresh'), of('everfresh', 'tests')]
  const excused = lacking.filter(({ id }) => reasons.has(id)).length
  const others = `nginx ${of('nginx')}, Varnish ${of('varnish')}, no cache ${of('none')}`
  return `${passed} of ${tests} required tests (${others}); ${excused} do not apply, each with its reason, `
    + `${tests - passed - excused} others fail; ${behindBoth().length} groups behind both`
}

/** Groups in which Everfresh passes fewer required tests than recorded. */
function belowMinimum(count) {
  const minimums = JSON.parse(readFileSync(path.join(here, 'minimums.json'), 'utf8'))
  return count.filter(({ group, passed }) => passed < (minimums[group] ?? 0))
    .map(({ group, passed }) => `${group}: ${passed} of ${minimums[group]} recorded`)
}

const { default: groups } = await import(path.join(suite, 'tests/index.mjs'))
const judge = new Suite(groups)
const results = {}
const readers = {}
for (const name of names) {
  const { suite: ofSuite, readers: ofReaders } = await run(name)
  results[name] = ofSuite
  readers[name] = ofReaders
  if (!json) process.stderr.write(`${name}: ${Object.keys(results[name]).length} tests ran\n`)
}
if (only) {
  for (const name of names) {
    const [, reason] = Array.isArray(results[name][only]) ? results[name][only] : []
    console.log(`${name}: ${reason ?? 'passed'}`)
  }
  process.exit()
}

const reasons = notApplicable()
const unknown = [...reasons.keys()].filter((id) => !judge.tests.has(id))
const counts = names.map((name) => judge.count(results[name]))
const lacking = names.includes('everfresh') ? judge.lacking(results.everfresh) : []
const failures = names.includes('everfresh') ? belowMinimum(counts[names.indexOf('everfresh')]) : []
for (const [what, seen] of Object.entries(readers.everfresh ?? {})) if (seen !== true) failures.push(`${what}: ${seen}`)
const all = names.length === 4
if (all) failures.push(...behindBoth().map((group) => `${group}: behind both nginx and Varnish`))
failures.push(...unknown.map((id) => `not-applicable.txt names ${id}, which is no test`))
if (options.includes('--write') && names.includes('everfresh')) {
  const recorded = Object.fromEntries(counts[names.indexOf('everfresh')].map(({ group, passed }) => [group, passed]))
  writeFileSync(path.join(here, 'minimums.json'), `${JSON.stringify(recorded, null, 2)}\n`)
}
if (json) {
  const each = Object.fromEntries(names.map((name, i) => [name, {
    required: counts[i], optimal: judge.count(results[name], 'optimal'), check: judge.count(results[name], 'check'),
    readers: readers[name],
  }]))
  console.log(JSON.stringify({ ...each, lacking: lacking.map((entry) => ({ ...entry, notApplicable: reasons.get(entry.id) })), failures }, null, 2))
} else {
  table(counts)
  readersTable()
  const open = lacking.filter(({ id }) => !reasons.has(id))
  if (open.length) console.log(`\neverfresh, required, not passed (${lacking.length - open.length} others do not apply: not-applicable.txt):`)
  for (const { group, id, verdict, reason } of open) console.log(`    ${group}  ${id}  ${verdict}: ${reason}`)
  const excused = lacking.filter(({ id }) => reasons.has(id)).map(({ id }) => reasons.get(id))
  if (excused.length) console.log('\ntests that do not apply and do not pass, by reason')
  for (const reason of new Set(excused)) console.log(`${String(excused.filter((each) => each === reason).length).padStart(6)}  ${reason}`)
  for (const failure of failures) console.log(`FAIL ${failure}`)
  if (all) console.log(`\nhttp cache: ${summary(lacking)}`)
}
process.exitCode = failures.length ? 1 : 0
