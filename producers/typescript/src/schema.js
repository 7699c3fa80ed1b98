/**
 * Validates a message against the published JSON schema.
 *
 * Only the keywords of that schema are known. A schema with another one is refused, so that no rule
 * is silently ignored. Lengths are in bytes of UTF-8, as the schema says, where other validators
 * count characters.
 */

import { readFileSync } from "node:fs";

/** @typedef {Record<string, any>} Schema */

/** @type {Schema} */
export const PUBLISHED_SCHEMA = JSON.parse(readFileSync(new URL("message-v1.json", import.meta.url), "utf8"));

const ANNOTATIONS = ["$schema", "$id", "title", "description", "default", "examples"];
const RULES = ["type", "const", "enum", "pattern", "minLength", "maxLength", "required", "oneOf", "properties", "additionalProperties"];

/** The schema has a keyword or value that this check does not know. */
export class SchemaError extends Error {}

/**
 * What is wrong with the value, by the names of fields, without repeating any value.
 * @param {Schema} schema
 * @param {unknown} value
 * @param {string} [name]
 * @returns {string[]}
 */
export function problems(schema, value, name = "message") {
  for (const keyword of Object.keys(schema)) {
    if (!ANNOTATIONS.includes(keyword) && !RULES.includes(keyword)) {
      throw new SchemaError(`the schema has the unknown keyword \`${keyword}\``);
    }
  }
  if (schema.properties && schema.additionalProperties !== false) {
    throw new SchemaError("the schema allows unknown fields");
  }
  if (schema.type !== undefined) {
    if (!["object", "string"].includes(schema.type)) {
      throw new SchemaError(`the schema has the unknown type \`${schema.type}\``);
    }
    const type = value === null || Array.isArray(value) ? "other" : typeof value;
    if (type !== schema.type) {
      return [`${name} must be of type ${schema.type}`];
    }
  }
  const found = [];
  if ("const" in schema && value !== schema.const) {
    found.push(`${name} must be ${schema.const}`);
  }
  if (schema.enum && !schema.enum.includes(value)) {
    found.push(`${name} must be one of ${schema.enum.join(", ")}`);
  }
  if (typeof value === "string") {
    found.push(...textProblems(schema, value, name));
  }
  if (typeof value === "object" && value !== null) {
    found.push(...objectProblems(schema, /** @type {Record<string, unknown>} */ (value), name));
  }
  return found;
}

/** @param {Schema} schema @param {string} value @param {string} name */
function textProblems(schema, value, name) {
  // A surrogate without its other half.
  if (/\p{Surrogate}/u.test(value)) {
    return [`${name} is not valid Unicode`];
  }
  const found = [];
  const length = Buffer.byteLength(value);
  if (length < (schema.minLength ?? 0) || length > (schema.maxLength ?? length)) {
    found.push(`${name} has ${length} bytes, allowed are ${schema.minLength ?? 0} to ${schema.maxLength}`);
  }
  if (schema.pattern && !new RegExp(schema.pattern, "u").test(value)) {
    found.push(`${name} does not match ${schema.pattern}`);
  }
  return found;
}

/** @param {Schema} schema @param {Record<string, unknown>} value @param {string} name */
function objectProblems(schema, value, name) {
  const found = [];
  const has = (/** @type {string} */ field) => Object.hasOwn(value, field);
  for (const field of schema.required ?? []) {
    if (!has(field)) found.push(`field \`${field}\` is missing`);
  }
  /** @type {Schema[]} */
  const choices = schema.oneOf ?? [];
  if (schema.oneOf && choices.filter((one) => problems(one, value).length === 0).length !== 1) {
    const names = choices.flatMap((one) => one.required ?? []).map((field) => `\`${field}\``);
    found.push(`${name} must have exactly one of ${names.join(" or ")}`);
  }
  for (const [field, content] of Object.entries(schema.properties ? value : {})) {
    if (Object.hasOwn(schema.properties, field)) {
      found.push(...problems(schema.properties[field], content, `field \`${field}\``));
    } else {
      found.push(`unknown field ${JSON.stringify(field.slice(0, 40))}; allowed are ${Object.keys(schema.properties).join(", ")}`);
    }
  }
  return found;
}

/**
 * What of this client's messages a published schema refuses; empty if they fit together.
 * @param {Schema} schema
 * @returns {string[]}
 */
export function checkSchema(schema) {
  const own = PUBLISHED_SCHEMA.properties.v.const;
  const version = schema?.properties?.v?.const;
  if (version === undefined) return ["the schema has no version"];
  if (version !== own) return [`the schema has version ${version}; this client writes version ${own}`];
  const page = { v: own, tenant: "acme", path: "/products/42?color=red", idempotency_key: "order-42:v3" };
  const samples = ["changed", "expired", "prewarm"].map((reason) => ({ ...page, reason }));
  return [...samples, { v: own, tenant: "acme", tag: "products", reason: "changed" }].flatMap((sample) => problems(schema, sample));
}
