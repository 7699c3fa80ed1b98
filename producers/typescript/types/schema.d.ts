/**
 * What is wrong with the value, by the names of fields, without repeating any value.
 * @param {Schema} schema
 * @param {unknown} value
 * @param {string} [name]
 * @returns {string[]}
 */
export function problems(schema: Schema, value: unknown, name?: string): string[];
/**
 * What of this client's messages a published schema refuses; empty if they fit together.
 * @param {Schema} schema
 * @returns {string[]}
 */
export function checkSchema(schema: Schema): string[];
/** @typedef {Record<string, any>} Schema */
/** @type {Schema} */
export const PUBLISHED_SCHEMA: Schema;
/** The schema has a keyword or value that this check does not know. */
export class SchemaError extends Error {
}
export type Schema = Record<string, any>;
