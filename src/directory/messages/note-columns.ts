import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { ProtocolError } from '../../base/errors.js';
import { DIRECTORY_NOTES_MAX_COUNT } from '../../base/limits.js';
import { isWholeNumber } from './location-columns.js';

const FIRST_COUNT = 64;

/** Notes, column by column. Each says below which version the contents of a key are void. */
export class NoteColumns {
  /** Digests of the keys, see `digestOf`. */
  digests: Float64Array = new Float64Array(0);
  versions: Float64Array = new Float64Array(0);
  partitions: Uint16Array = new Uint16Array(0);
  count = 0;

  /** Throws `ProtocolError` unless the fields are columns of at most DIRECTORY_NOTES_MAX_COUNT notes. */
  static decode({ digests, versions, partitions }: Readonly<Record<string, unknown>>): NoteColumns {
    const columns = new NoteColumns();
    columns.digests = new Float64Array(copyOf('digests', digests, 8));
    columns.versions = new Float64Array(copyOf('versions', versions, 8));
    columns.partitions = new Uint16Array(copyOf('partitions', partitions, 2));
    columns.count = columns.digests.length;
    const isWhole = columns.versions.length === columns.count && columns.partitions.length === columns.count;
    if (!isWhole || columns.count > DIRECTORY_NOTES_MAX_COUNT)
      throw new ProtocolError(`notes: not columns of at most ${DIRECTORY_NOTES_MAX_COUNT}`);
    if (!columns.digests.every(isWholeNumber)) throw new ProtocolError('digests: not whole numbers up to 2^53');
    if (!columns.versions.every(isVersion)) throw new ProtocolError('versions: not versions');
    return columns;
  }

  add(digest: number, version: number, partition: number): void {
    if (this.count === this.digests.length) this.#grow();
    this.digests[this.count] = digest;
    this.versions[this.count] = version;
    this.partitions[this.count++] = partition;
  }

  /** The latest version; 0: there are no notes. */
  get newest(): number {
    let newest = 0;
    for (let i = 0; i < this.count; i++) newest = Math.max(newest, this.versions[i] as number);
    return newest;
  }

  /** The notes with versions that pass a test. */
  where(test: (version: number) => boolean): NoteColumns {
    const notes = new NoteColumns();
    for (let i = 0; i < this.count; i++) {
      const version = this.versions[i] as number;
      if (test(version)) notes.add(this.digests[i] as number, version, this.partitions[i] as number);
    }
    return notes;
  }

  /** The notes from `start` on, `length` at most, which share the memory of these. */
  part(start: number, length: number): NoteColumns {
    const part = new NoteColumns();
    const end = Math.min(start + length, this.count);
    part.digests = this.digests.subarray(start, end);
    part.versions = this.versions.subarray(start, end);
    part.partitions = this.partitions.subarray(start, end);
    part.count = end - start;
    return part;
  }

  /** The fields of a message, which share the memory of the notes. */
  fields(): { digests: Uint8Array; versions: Uint8Array; partitions: Uint8Array } {
    const { digests, versions, partitions } = this.part(0, this.count);
    return { digests: bytesOf(digests), versions: bytesOf(versions), partitions: bytesOf(partitions) };
  }

  #grow(): void {
    const { digests, versions, partitions } = this;
    const length = Math.max(FIRST_COUNT, 2 * this.count);
    this.digests = new Float64Array(length);
    this.digests.set(digests);
    this.versions = new Float64Array(length);
    this.versions.set(versions);
    this.partitions = new Uint16Array(length);
    this.partitions.set(partitions);
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
}

function copyOf(name: string, bytes: unknown, unit: number): ArrayBuffer {
  if (!(bytes instanceof Uint8Array) || bytes.length % unit !== 0)
    throw new ProtocolError(`${name}: not binary of ${unit} bytes each`);
  return new Uint8Array(bytes).buffer;
}
