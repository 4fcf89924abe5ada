import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { ProtocolError } from '../../base/errors.js';
import type { Keys } from '../../core/index.js';
import { columnOf, decodeKeys } from './key-column.js';
import { isWholeNumber, LocationColumns } from './location-columns.js';

/**
 * Messages of the directory; PROTOCOL.md beside this file describes them field by field. Everything from a peer is
 * checked here before it is used; every function that reads a field throws `ProtocolError`.
 */
export type Fields = Readonly<Record<string, unknown>>;

export const DirectoryMethod = {
  put: 'directory.put',
  get: 'directory.get',
  exists: 'directory.exists',
  delete: 'directory.delete',
  renounce: 'directory.renounce',
  discard: 'directory.discard',
  note: 'directory.note',
} as const;

/** The fields of a request that carry its keys. */
export type KeyFields = { readonly key_lengths: Uint8Array; readonly key_text: Uint8Array };

/** Encodes the keys of a request. */
export function keyFields(keys: Keys): KeyFields {
  const { lengths, text } = columnOf(keys);
  return { key_lengths: lengths, key_text: text };
}

/** The keys of a request. `owned`: see {@link decodeKeys}. */
export function readKeys(fields: Fields, owned: boolean): string[] {
  return decodeKeys({ lengths: readBytes(fields, 'key_lengths'), text: readBytes(fields, 'key_text') }, owned);
}

export function locationFields(locations: LocationColumns): { nodes: unknown; locations: Uint8Array } {
  return { nodes: locations.nodesToWire(), locations: locations.bytes };
}

export function readLocations(fields: Fields, count: number): LocationColumns {
  const locations = LocationColumns.decode(fields.locations, fields.nodes);
  if (locations.count !== count) throw new ProtocolError(`${locations.count} locations for ${count} keys`);
  return locations;
}

/** Conditions that a node attaches to the locations that it puts. */
export interface PutWish {
  /** A computed page is `held`, and not taken, if another live node has one of the same length. */
  readonly unlessHeld?: boolean | undefined;
  /**
   * Given if the pages are from before this start of the node, or from before it was away: the digest of its last start
   * that knew all of them to be good, see `digestOfStart`; 0: not known. A page that may have become void since that
   * start was lost is `outdated`.
   */
  readonly formerStart?: number | undefined;
}

export function wishFields({ unlessHeld, formerStart }: PutWish): { unless_held?: true; former_start?: number } {
  return {
    ...(unlessHeld === true ? { unless_held: true } : {}),
    ...(formerStart === undefined ? {} : { former_start: formerStart }),
  };
}

export function readWish({ unless_held: unlessHeld, former_start: formerStart }: Fields): PutWish {
  if (formerStart === undefined) return { unlessHeld: unlessHeld === true };
  if (!isWholeNumber(formerStart)) throw new ProtocolError('former_start: not a whole number up to 2^53');
  return { unlessHeld: unlessHeld === true, formerStart };
}

/**
 * A shard's answer to a statement: one {@link Taken} code for each key, and the newest version that the shard knows of.
 */
export interface PutAnswer {
  readonly taken: Uint8Array;
  readonly newestVersion: number;
}

export function readPutAnswer(fields: Fields, count: number): PutAnswer {
  const newestVersion = fields.newest_version ?? 0;
  if (!isVersion(newestVersion)) throw new ProtocolError('newest_version: not a version');
  return { taken: readFlags(fields, 'taken', count), newestVersion };
}

/** Reads a field of flags, one byte for each key. */
export function readFlags(fields: Fields, name: string, count: number): Uint8Array {
  const flags = readBytes(fields, name);
  if (flags.length !== count) throw new ProtocolError(`${flags.length} flags for ${count} keys`);
  return flags;
}

export function asFields(value: unknown): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw new ProtocolError('not a map');
}

export function readBytes(fields: Fields, name: string): Uint8Array {
  const value = fields[name];
  if (value instanceof Uint8Array) return value;
  throw new ProtocolError(`${name}: not binary`);
}
