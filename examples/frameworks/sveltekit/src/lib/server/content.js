import { readFile } from 'node:fs/promises'

/** The "database": a file that the checks write to. */
export const content = async () => JSON.parse(await readFile(process.env.CONTENT, 'utf8'))
