import { createHash } from 'node:crypto';
import { seededRandom } from '../../../src/base/environment/random.js';

/** Number of the keys; those of small number have small pages. */
export const KEY_COUNT = 96;

/** The key of a number; some are long, and some are not of one byte a character. */
export function keyOf(number: number): string {
  if (number % 16 === 7) return `${number} ${'long '.repeat(200)}`;
  return number % 16 === 9 ? `ключ ${number}` : `key ${number}`;
}

/** The bytes of a version of a page. */
export function pageOf(number: number, version: number): Uint8Array {
  const random = seededRandom(number * 65_537 + version);
  const length = number < 6 ? 1 + number : 64 + (random.u32() % (number % 32 === 31 ? 2 ** 21 : 2 ** 15));
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let i = 0; i < words.length; i++) words[i] = random.u32();
  return new Uint8Array(words.buffer, 0, length);
}

/** What stands for the bytes of a page in messages. */
export function digestOf(bytes: Uint8Array): string {
  return createHash('sha1').update(bytes).digest('hex');
}
