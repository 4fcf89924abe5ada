import { seededRandom } from '../../../src/base/environment/random.js';
import { content } from '../support.js';

/** What step `version` of the workload with this seed does. */
export interface Step {
  readonly kind: 'put' | 'remove' | 'read' | 'touch';
  readonly key: string;
  /** Length of the page to put. */
  readonly length: number;
}

const KEYS_COUNT = 400;
const VERSION_BYTES = 4;

/** Whether a page is never read nor touched, so that only writes decide its place in the order. */
export function isOnlyWritten(key: string): boolean {
  return key.startsWith('w');
}

export function stepOf(seed: number, version: number): Step {
  const random = seededRandom((Math.imul(seed, 2654435761) + version) >>> 0);
  random.u32();
  const number = random.u32() % KEYS_COUNT;
  const dice = random.u32() % 100;
  const length = 1 + (random.u32() % (dice % 2 === 0 ? 20_000 : 300_000));
  // Long keys make the index long, so that it is rewritten often.
  const key = `${number % 2 === 0 ? 'w' : 'r'}${number}-${'x'.repeat((number * 37) % 3000)}`;
  if (dice < 70) return { kind: 'put', key, length };
  if (dice < 75) return { kind: 'remove', key, length };
  if (isOnlyWritten(key)) return { kind: 'put', key, length };
  return { kind: dice < 95 ? 'read' : 'touch', key, length };
}

/** The page of step `version`: it contains the version, and the rest follows from that. */
export function pageOf(version: number, length: number): Uint8Array {
  const bytes = content(length < VERSION_BYTES ? length : version, length);
  if (length >= VERSION_BYTES) new DataView(bytes.buffer).setUint32(0, version, true);
  return bytes;
}

/**
 * The version of a page that was read under `key`; undefined for pages that are too short to tell. Throws if no step
 * has put it.
 */
export function versionIn(seed: number, key: string, bytes: Uint8Array): number | undefined {
  const { length } = bytes;
  const version = length < VERSION_BYTES ? undefined : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  if (version !== undefined) {
    const step = stepOf(seed, version);
    if (step.kind !== 'put' || step.key !== key || step.length !== length)
      throw new Error(`${key.slice(0, 8)}: a page of ${length} bytes that version ${version} has not put there`);
  }
  if (Buffer.compare(bytes, pageOf(version ?? 0, length)) !== 0)
    throw new Error(`${key.slice(0, 8)}: wrong bytes in a page of ${length} bytes, version ${version}`);
  return version;
}
