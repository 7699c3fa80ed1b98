// `everfresh dev` in front of an app.
import { execFile } from 'node:child_process'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import path from 'node:path'
import { mkdirSync } from 'node:fs'
import { start, stop } from './processes.mjs'

const runFile = promisify(execFile)

export class Everfresh {
  /** Starts `dev` with no configuration but the address of the app, unless there is one. */
  static async start(binary, { origin, folder, config, env = {} }) {
    const everfresh = new Everfresh()
    mkdirSync(folder, { recursive: true })
    Object.assign(everfresh, { binary, data: path.join(folder, 'everfresh'), log: path.join(folder, 'everfresh.log') })
    const configured = config ? ['--config', config] : ['--origin', origin]
    const command = [binary, 'dev', '--json', '--fresh', '--port', '0', '--data', everfresh.data, ...configured]
    everfresh.process = start(command, { env: { RUST_LOG: process.env.RUST_LOG ?? 'info', ...env }, log: everfresh.log, readOutput: true })
    const lines = createInterface({ input: everfresh.process.stdout })
    const first = await Promise.race([lines[Symbol.asyncIterator]().next(), everfresh.process.ended])
    if (!first?.value) throw new Error(`everfresh dev does not start: see ${everfresh.log}`)
    everfresh.process.stdout.resume()
    everfresh.url = JSON.parse(first.value).pages
    return everfresh
  }

  /** Requests a new version of a page, as an editor's system does after a change. */
  async enqueue(pathname) {
    await runFile(this.binary, ['--data', this.data, 'enqueue', '--json', pathname])
  }

  stop() {
    return stop(this.process)
  }
}
