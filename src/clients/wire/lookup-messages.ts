import { ProtocolError } from '../../base/errors.js';
import { BodyReader, BodyWriter } from './body.js';
import type { BodyTexts } from './body-texts.js';

/** Body of EXISTS. */
export interface ExistsRequest {
  readonly pool: string;
  readonly wantsFlags: boolean;
  /** Whether the client reports the outcome by LOOKUPS; default: false. Only for nodes with `Capability.lookups`. */
  readonly isUncounted?: boolean;
  readonly suffixes: readonly string[];
  readonly keys: string[];
}

/** Body of LOOKUPS: how many keys were looked up, and how many were found before the first miss of their lookup. */
export interface LookupCounts {
  readonly asked: number;
  readonly found: number;
}

const FLAG_PER_KEY = 1;
const FLAG_UNCOUNTED = 2;
const FLAGS_MAX = 3;

export function encodeExists({ pool, wantsFlags, isUncounted, suffixes, keys }: ExistsRequest): Buffer {
  const writer = new BodyWriter(64 + 70 * keys.length);
  writer
    .text16(pool)
    .u8((wantsFlags ? FLAG_PER_KEY : 0) | (isUncounted ? FLAG_UNCOUNTED : 0))
    .u8(suffixes.length);
  for (const suffix of suffixes) writer.text16(suffix);
  return writer.keys(keys).done();
}

/** An EXISTS as it was received: its texts are still in the body. */
export type ReceivedExists = Omit<Required<ExistsRequest>, 'keys' | 'suffixes'> & {
  readonly suffixes: BodyTexts;
  readonly keys: BodyTexts;
};

export function decodeExists(body: Buffer, maxKeys: number): ReceivedExists {
  const reader = new BodyReader(body);
  const pool = reader.text16();
  const flags = reader.u8();
  if (flags > FLAGS_MAX) throw new ProtocolError(`flags of ${flags}; 0 to ${FLAGS_MAX} are known`);
  const suffixes = reader.texts16(reader.u8());
  const keys = reader.keys(maxKeys);
  reader.end();
  const [wantsFlags, isUncounted] = [(flags & FLAG_PER_KEY) !== 0, (flags & FLAG_UNCOUNTED) !== 0];
  return { pool, wantsFlags, isUncounted, suffixes, keys };
}

export function encodeLookups({ asked, found }: LookupCounts): Buffer {
  return new BodyWriter(16).u64(asked).u64(found).done();
}

/** Decodes LOOKUPS. Throws `ProtocolError`. */
export function decodeLookups(body: Buffer): LookupCounts {
  const reader = new BodyReader(body);
  const [asked, found] = [reader.u64(), reader.u64()];
  reader.end();
  if (found <= asked) return { asked, found };
  throw new ProtocolError(`${found} keys found of ${asked}`);
}
