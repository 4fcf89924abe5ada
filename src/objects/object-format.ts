import { createHash } from 'node:crypto';
import {
  OBJECT_HEADER_BYTES,
  OBJECT_KEY_MAX_BYTES,
  OBJECT_PAGE_MAX_BYTES,
  OBJECT_WRITER_MAX_BYTES,
} from '../base/limits.js';
import { crc32 } from '../memory/checksum.js';

/**
 * What an object is: a page, the mark that a page was deleted, the marker of a writer that has cleared its pages, or a
 * test of the store.
 */
type ObjectKind = 'page' | 'deleted' | 'cleared' | 'test';

/** The header of an object; FORMAT.md draws it. */
export interface ObjectHeader {
  readonly kind: ObjectKind;
  /** The whole object key; in a marker, the id of its writer. */
  readonly key: string;
  /** Number of bytes behind the header. */
  readonly length: number;
  /** CRC-32 of the bytes behind the header. */
  readonly checksum: number;
  /** Number of times that the writer had cleared its pages. */
  readonly generation: number;
  /** Version of the page; for a deleted page, the version below which it is void. */
  readonly version: number;
  /** Version from which on the page is expired; 0: never. */
  readonly expires: number;
  /** Id of the node that wrote the object. */
  readonly writer: string;
}

const MAGIC = Buffer.from('MESHOBJ\n', 'latin1');
const FORMAT_VERSION = 1;
const KINDS: readonly ObjectKind[] = ['page', 'deleted', 'cleared', 'test'];
const AT = { version: 8, kind: 10, headerSum: 12, length: 16, bodySum: 24, generation: 28 } as const;
const AT_PAGE = { version: 32, expires: 40, keyLength: 48, writerLength: 50, key: 64 } as const;
const AT_WRITER = AT_PAGE.key + OBJECT_KEY_MAX_BYTES;

/** The id by which objects name a writer: the node's, or its digest if that is too long. */
export function writerIdOf(nodeId: string): string {
  if (Buffer.byteLength(nodeId) <= OBJECT_WRITER_MAX_BYTES) return nodeId;
  return `sha256:${createHash('sha256').update(nodeId).digest('hex')}`;
}

/** Whether the page of a key can be in the object store. */
export function isStorable(key: string): boolean {
  // Lone surrogates would come back as other characters.
  return Buffer.byteLength(key) <= OBJECT_KEY_MAX_BYTES && key.isWellFormed();
}

/** The OBJECT_HEADER_BYTES bytes of a header. The key must be storable, and the writer a {@link writerIdOf}. */
export function encodeHeader(header: ObjectHeader): Buffer {
  const bytes = Buffer.alloc(OBJECT_HEADER_BYTES);
  MAGIC.copy(bytes);
  bytes.writeUInt16LE(FORMAT_VERSION, AT.version);
  bytes.writeUInt8(KINDS.indexOf(header.kind), AT.kind);
  bytes.writeBigUInt64LE(BigInt(header.length), AT.length);
  bytes.writeUInt32LE(header.checksum, AT.bodySum);
  bytes.writeUInt32LE(header.generation, AT.generation);
  bytes.writeBigUInt64LE(BigInt(header.version), AT_PAGE.version);
  bytes.writeBigUInt64LE(BigInt(header.expires), AT_PAGE.expires);
  bytes.writeUInt16LE(bytes.write(header.key, AT_PAGE.key, OBJECT_KEY_MAX_BYTES), AT_PAGE.keyLength);
  bytes.writeUInt16LE(bytes.write(header.writer, AT_WRITER, OBJECT_WRITER_MAX_BYTES), AT_PAGE.writerLength);
  bytes.writeUInt32LE(crc32(bytes), AT.headerSum);
  return bytes;
}

/**
 * The header at the beginning of an object; undefined: the object is damaged, of another format, or of another program.
 */
export function decodeHeader(object: Uint8Array): ObjectHeader | undefined {
  if (object.length < OBJECT_HEADER_BYTES) return undefined;
  const bytes = Buffer.from(object.subarray(0, OBJECT_HEADER_BYTES));
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC) || bytes.readUInt16LE(AT.version) !== FORMAT_VERSION)
    return undefined;
  const sum = bytes.readUInt32LE(AT.headerSum);
  bytes.writeUInt32LE(0, AT.headerSum);
  if (crc32(bytes) !== sum) return undefined;
  const kind = KINDS[bytes.readUInt8(AT.kind)];
  const length = Number(bytes.readBigUInt64LE(AT.length));
  const [keyLength, writerLength] = [bytes.readUInt16LE(AT_PAGE.keyLength), bytes.readUInt16LE(AT_PAGE.writerLength)];
  if (kind === undefined || length > OBJECT_PAGE_MAX_BYTES) return undefined;
  if (keyLength > OBJECT_KEY_MAX_BYTES || writerLength > OBJECT_WRITER_MAX_BYTES) return undefined;
  return {
    kind,
    length,
    key: bytes.toString('utf8', AT_PAGE.key, AT_PAGE.key + keyLength),
    checksum: bytes.readUInt32LE(AT.bodySum),
    generation: bytes.readUInt32LE(AT.generation),
    version: Number(bytes.readBigUInt64LE(AT_PAGE.version)),
    expires: Number(bytes.readBigUInt64LE(AT_PAGE.expires)),
    writer: bytes.toString('utf8', AT_WRITER, AT_WRITER + writerLength),
  };
}

/** Names of objects below a prefix, which is empty or ends with a slash. */
export class ObjectNames {
  readonly #root: string;

  constructor(prefix: string) {
    this.#root = `${prefix}v${FORMAT_VERSION}/`;
  }

  /** The object of a page. Its name begins with digits of a hash, because stores spread requests by name prefix. */
  ofPage(key: string): string {
    const digest = createHash('sha256').update(key).digest('hex');
    return `${this.#root}pages/${digest.slice(0, 2)}/${digest.slice(2, 4)}/${digest}`;
  }

  /** The object by which a writer tests the store. */
  ofTest(writer: string): string {
    return `${this.#root}tests/${createHash('sha256').update(writer).digest('hex')}`;
  }

  /** The marker of a writer. */
  ofWriter(writer: string): string {
    return `${this.#root}writers/${createHash('sha256').update(writer).digest('hex')}`;
  }
}
