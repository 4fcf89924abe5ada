import type { Protocol } from './protocol.js';

/** The end of a line, and of a bulk string. */
export const CRLF: Buffer = Buffer.from('\r\n');
const NIL_2 = Buffer.from('$-1\r\n');
const NIL_3 = Buffer.from('_\r\n');
/** The answer `OK`. */
export const OK: Buffer = Buffer.from('+OK\r\n');

/** A value of an answer, as a command returns it. */
export type Answer =
  | string
  | number
  | null
  | Uint8Array
  | readonly Answer[]
  /** A status, which takes one line. */
  | { readonly status: string }
  /** Pairs. RESP2 sends them as an array. */
  | { readonly map: readonly (readonly [Answer, Answer])[] }
  /** Distinct values. RESP2 sends them as an array. */
  | { readonly set: readonly Answer[] }
  /** A text for people, with its format. RESP2 sends it as a string. */
  | { readonly verbatim: string };

/** Returns the beginning of a bulk string. */
export function bulkHead(bytes: number): string {
  return `$${bytes}\r\n`;
}

/** Returns the beginning of an array. */
export function arrayHead(count: number): Buffer {
  return Buffer.from(`*${count}\r\n`);
}

/** Returns the answer for a missing value. */
export function nilOf(protocol: Protocol): Buffer {
  return protocol === 2 ? NIL_2 : NIL_3;
}

/** Encodes an integer. */
export function integer(value: number): Buffer {
  return Buffer.from(`:${value}\r\n`);
}

/** Encodes an error. The text begins with its code, such as `ERR`; line ends in it become spaces. */
export function errorAnswer(text: string): Buffer {
  return Buffer.from(`-${text.replace(/[\r\n]/g, ' ')}\r\n`);
}

/** Encodes a value; strings become bulk strings. */
export function encodeAnswer(value: Answer, protocol: Protocol): Buffer {
  const pieces: (string | Uint8Array)[] = [];
  add(value, protocol, pieces);
  return Buffer.concat(pieces.map((piece) => (typeof piece === 'string' ? Buffer.from(piece) : piece)));
}

function add(value: Answer, protocol: Protocol, to: (string | Uint8Array)[]): void {
  if (value === null) {
    to.push(nilOf(protocol));
  } else if (typeof value === 'number') {
    to.push(`:${value}\r\n`);
  } else if (typeof value === 'string') {
    to.push(bulkHead(Buffer.byteLength(value)), value, CRLF);
  } else if (value instanceof Uint8Array) {
    to.push(bulkHead(value.length), value, CRLF);
  } else if (isList(value)) {
    addAll('*', value, { protocol, to });
  } else if ('status' in value) {
    to.push(`+${value.status}\r\n`);
  } else if ('verbatim' in value) {
    const { verbatim } = value;
    if (protocol === 2) add(verbatim, protocol, to);
    else to.push(`=${Buffer.byteLength(verbatim) + 4}\r\ntxt:`, verbatim, CRLF);
  } else if ('map' in value) {
    to.push(protocol === 2 ? `*${2 * value.map.length}\r\n` : `%${value.map.length}\r\n`);
    for (const [key, each] of value.map) {
      add(key, protocol, to);
      add(each, protocol, to);
    }
  } else {
    addAll(protocol === 3 ? '~' : '*', value.set, { protocol, to });
  }
}

function addAll(
  kind: '*' | '~',
  all: readonly Answer[],
  { protocol, to }: { readonly protocol: Protocol; readonly to: (string | Uint8Array)[] },
): void {
  to.push(`${kind}${all.length}\r\n`);
  for (const each of all) add(each, protocol, to);
}

function isList(value: Answer): value is readonly Answer[] {
  return Array.isArray(value);
}
