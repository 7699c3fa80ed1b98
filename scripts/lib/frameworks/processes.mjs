// Starts programs on loopback, and ends each with its children.
import { spawn } from 'node:child_process'
import { openSync, closeSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const running = new Set()

export async function freePort() {
  const server = createServer()
  await new Promise((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Starts a program in a process group of its own. Its output goes to the file `log`. */
export function start(command, { cwd, env = {}, log, readOutput = false }) {
  const file = openSync(log, 'a')
  const child = spawn(command[0], command.slice(1), {
    cwd,
    env: { ...process.env, ...env },
    detached: true,
    stdio: ['ignore', readOutput ? 'pipe' : file, file],
  })
  closeSync(file)
  child.ended = new Promise((resolve) => {
    child.once('exit', resolve)
    child.once('error', resolve)
  })
  running.add(child)
  child.ended.then(() => running.delete(child))
  return child
}

/** Runs a program to its end, and throws if it fails. */
export async function run(command, options) {
  const child = start(command, options)
  if ((await child.ended) !== 0) throw new Error(`${command.join(' ')} failed: see ${options.log}`)
}

function signal(child, name) {
  try {
    process.kill(-child.pid, name)
  } catch {
    // It has ended.
  }
}

export async function stop(child) {
  signal(child, 'SIGTERM')
  await Promise.race([child.ended, sleep(5_000)])
  // Also what the program started and left running.
  signal(child, 'SIGKILL')
  await child.ended
}

export const stopAll = () => Promise.all([...running].map(stop))

/** Waits until the program answers HTTP on this address. */
export async function answering(url, child, log) {
  let ended = false
  child.ended.then(() => (ended = true))
  for (const end = Date.now() + 60_000; Date.now() < end && !ended; ) {
    try {
      await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(20_000) })
      return
    } catch {
      await sleep(100)
    }
  }
  throw new Error(`${url} does not answer: see ${log}`)
}
