#!/usr/bin/env node
/**
 * Checks messages against the published schema, for the CI of a producer.
 *
 *     everfresh-check [--schema message-v1.json] [FILE…]
 *
 * Each FILE has one message, an array of messages, or one message per line; `-` is standard input.
 * With --schema, a schema that was published with a deployment is used instead of the one in this
 * package, after checking that it has this client's version and accepts what this client writes.
 */

import { readFileSync } from "node:fs";

import { VERSION } from "./message.js";
import { checkSchema, problems, PUBLISHED_SCHEMA, SchemaError } from "./schema.js";

const USAGE = "everfresh-check [--schema message-v1.json] [FILE…]";

/** @param {string} text @returns {unknown} undefined if it is not JSON */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {string} text @returns {[number, unknown][]} */
function messagesOf(text) {
  const whole = parse(text);
  if (whole !== undefined) return (Array.isArray(whole) ? whole : [whole]).map((message, index) => [index + 1, message]);
  const lines = text.split(/\r?\n/).map((line, index) => /** @type {[number, string]} */ ([index + 1, line]));
  return lines.filter(([, line]) => line.trim() !== "").map(([number, line]) => [number, parse(line)]);
}

/** @param {string[]} given @returns {number} the exit code */
function main(given) {
  let schema = PUBLISHED_SCHEMA;
  let files = given;
  if (given[0] === "--schema" && given.length > 1) {
    schema = JSON.parse(readFileSync(given[1], "utf8"));
    files = given.slice(2);
    const found = checkSchema(schema);
    if (found.length > 0) {
      console.error(found.join("\n"));
      return 1;
    }
  } else if (given.length === 0 || given[0].startsWith("--")) {
    console.error(USAGE);
    return 2;
  }
  let checked = 0;
  const found = [];
  for (const file of files) {
    for (const [number, message] of messagesOf(readFileSync(file === "-" ? 0 : file, "utf8"))) {
      checked += 1;
      const wrong = message === undefined ? ["message is not JSON"] : problems(schema, message);
      found.push(...wrong.map((problem) => `${file}:${number}: ${problem}`));
    }
  }
  if (found.length > 0) {
    console.error(found.join("\n"));
    return 1;
  }
  console.log(`${checked} messages of version ${VERSION} are valid`);
  return 0;
}

try {
  process.exitCode = main(process.argv.slice(2));
} catch (error) {
  const known = error instanceof SchemaError || error instanceof SyntaxError || /** @type {any} */ (error).code !== undefined;
  if (!known) throw error;
  console.error(/** @type {Error} */ (error).message);
  process.exitCode = 2;
}
