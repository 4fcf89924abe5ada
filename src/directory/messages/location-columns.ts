import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { ArgumentError, ProtocolError } from '../../base/errors.js';
import { DIRECTORY_REQUEST_MAX_KEYS, NODE_ENDPOINT_MAX_CHARACTERS, NODE_ID_MAX_BYTES } from '../../base/limits.js';
import { areAll } from '../../core/binding/key-batch.js';
import { DataLocation, STAMP_MAX } from '../../types.js';

/** Fields that all locations of one node share. */
export interface LocationNode {
  readonly nodeId: string;
  readonly incarnation: number;
  /** `host:port` of its data plane. */
  readonly endpoint: string;
}

/**
 * Defaults that a node fills into its locations: the generation where it is 0, and the incarnation where it is 0 and
 * the location names this node.
 */
export interface LocationStamp extends Pick<LocationNode, 'nodeId' | 'incarnation'> {
  readonly generation: number;
}

/** Node index that marks a position without a location. */
export const NO_LOCATION = 0xffffffff;
const BYTES_PER_LOCATION = 73;
const U64_MAX = (1n << 64n) - 1n;

/** Bits of a location's `flags`. */
export const ON_DISK = 1;
export const NAMED = 2;
const FLAGS_MAX = ON_DISK | NAMED;

/**
 * Locations of a batch of keys, column by column, and the table of the nodes that they name. The layout in memory is
 * the layout on the wire (little endian); for `n` locations:
 *
 *       offset  0n  addr        u64 each
 *               8n  length      f64, whole, bytes of the page
 *              16n  generation  f64, whole
 *              24n  version     f64, whole
 *              32n  stamp       f64, whole, below 2^48
 *              40n  tail        f64, whole, below 2^48
 *              48n  expires     f64, whole; 0: never
 *              56n  rkey        u32
 *              60n  checksum    u32
 *              64n  node        u32, index into the node table; 0xffffffff: no location
 *              68n  set by      u32, origin of the node that has set the content of a copy (see `originOf`); 0: no copy
 *              72n  flags       u8: ON_DISK, NAMED
 */
export class LocationColumns {
  readonly count: number;
  readonly nodes: LocationNode[];
  readonly addr: BigUint64Array;
  /** The memory of `addr` as 32-bit words: low word, then high word of each address. */
  readonly addrWords: Uint32Array;
  readonly length: Float64Array;
  readonly generation: Float64Array;
  readonly version: Float64Array;
  readonly stamp: Float64Array;
  readonly tail: Float64Array;
  readonly expires: Float64Array;
  readonly rkey: Uint32Array;
  readonly checksum: Uint32Array;
  readonly node: Uint32Array;
  readonly setBy: Uint32Array;
  readonly flags: Uint8Array;
  /** All columns as they travel. */
  readonly bytes: Uint8Array;
  /** Bytes of pages that came with their locations; undefined: none. */
  inline: { bytesOf(row: number): Uint8Array | undefined } | undefined;

  /**
   * Creates `count` positions without a location, or takes the columns from `buffer`, which must have exactly the right
   * length.
   */
  constructor(count: number, nodes: LocationNode[] = [], buffer?: ArrayBuffer) {
    const memory = buffer ?? new ArrayBuffer(count * BYTES_PER_LOCATION);
    this.count = count;
    this.nodes = nodes;
    this.bytes = new Uint8Array(memory);
    this.addr = new BigUint64Array(memory, 0, count);
    this.addrWords = new Uint32Array(memory, 0, count * 2);
    this.length = new Float64Array(memory, count * 8, count);
    this.generation = new Float64Array(memory, count * 16, count);
    this.version = new Float64Array(memory, count * 24, count);
    this.stamp = new Float64Array(memory, count * 32, count);
    this.tail = new Float64Array(memory, count * 40, count);
    this.expires = new Float64Array(memory, count * 48, count);
    this.rkey = new Uint32Array(memory, count * 56, count);
    this.checksum = new Uint32Array(memory, count * 60, count);
    this.node = new Uint32Array(memory, count * 64, count);
    this.setBy = new Uint32Array(memory, count * 68, count);
    this.flags = new Uint8Array(memory, count * 72, count);
    if (buffer === undefined) this.node.fill(NO_LOCATION);
  }

  /**
   * Builds columns from location objects; `stamp` fills in fields that they leave open. Throws `ArgumentError` for
   * fields that do not fit.
   */
  static of(locations: readonly DataLocation[], stamp?: LocationStamp): LocationColumns {
    const columns = new LocationColumns(locations.length);
    for (let i = 0; i < locations.length; i++) columns.#set(i, locations[i] as DataLocation);
    if (stamp !== undefined) columns.fillOpen(stamp);
    return columns;
  }

  /** Joins several columns into one, in order. */
  static concat(parts: readonly LocationColumns[]): LocationColumns {
    const all = new LocationColumns(parts.reduce((sum, part) => sum + part.count, 0));
    let at = 0;
    for (const part of parts) {
      const indices = Uint32Array.from(part.nodes, (node) => all.#indexOf(node));
      all.addr.set(part.addr, at);
      all.length.set(part.length, at);
      all.generation.set(part.generation, at);
      all.version.set(part.version, at);
      all.stamp.set(part.stamp, at);
      all.tail.set(part.tail, at);
      all.expires.set(part.expires, at);
      all.rkey.set(part.rkey, at);
      all.checksum.set(part.checksum, at);
      all.node.set(
        part.node.map((node) => indices[node] ?? NO_LOCATION),
        at,
      );
      all.setBy.set(part.setBy, at);
      all.flags.set(part.flags, at);
      at += part.count;
    }
    return all;
  }

  /**
   * Decodes and checks the columns of a message; the result is a copy. Leaves out locations whose version or expiry is
   * not a valid version. Throws {@link ProtocolError}.
   */
  static decode(bytes: unknown, nodes: unknown): LocationColumns {
    if (!(bytes instanceof Uint8Array)) throw new ProtocolError('locations: not binary');
    const count = bytes.length / BYTES_PER_LOCATION;
    if (!Number.isInteger(count) || count > DIRECTORY_REQUEST_MAX_KEYS) {
      throw new ProtocolError(`locations: ${bytes.length} bytes`);
    }
    const columns = new LocationColumns(count, decodeNodes(nodes), new Uint8Array(bytes).buffer);
    columns.#check();
    return columns;
  }

  /** Fills in the fields that locations leave open. */
  fillOpen({ nodeId, incarnation, generation }: LocationStamp): void {
    for (let i = 0; i < this.count; i++) if (this.generation[i] === 0) this.generation[i] = generation;
    for (const [i, node] of this.nodes.entries()) {
      if (node.incarnation === 0 && node.nodeId === nodeId) this.nodes[i] = { ...node, incarnation };
    }
  }

  /** Some positions, in the order of `indices`: a copy that shares the node table, or the columns themselves if all. */
  pick(indices: readonly number[]): LocationColumns {
    if (areAll(indices, this.count)) return this;
    const picked = new LocationColumns(indices.length, this.nodes);
    for (let j = 0; j < indices.length; j++) {
      const i = indices[j] as number;
      picked.#copyNumbers(j, this, i);
      picked.node[j] = this.node[i] as number;
    }
    return picked;
  }

  /** Copies the location at position `i` of `from`, where there must be one, to position `to`. */
  copy(to: number, from: LocationColumns, i: number): void {
    this.#copyNumbers(to, from, i);
    this.node[to] = this.#indexOf(from.nodes[from.node[i] as number] as LocationNode);
  }

  #copyNumbers(to: number, from: LocationColumns, i: number): void {
    this.addrWords[to * 2] = from.addrWords[i * 2] as number;
    this.addrWords[to * 2 + 1] = from.addrWords[i * 2 + 1] as number;
    this.length[to] = from.length[i] as number;
    this.generation[to] = from.generation[i] as number;
    this.version[to] = from.version[i] as number;
    this.stamp[to] = from.stamp[i] as number;
    this.tail[to] = from.tail[i] as number;
    this.expires[to] = from.expires[i] as number;
    this.rkey[to] = from.rkey[i] as number;
    this.checksum[to] = from.checksum[i] as number;
    this.setBy[to] = from.setBy[i] as number;
    this.flags[to] = from.flags[i] as number;
  }

  /** The node table as it travels. */
  nodesToWire(): [string, number, string][] {
    return this.nodes.map(({ nodeId, incarnation, endpoint }) => [nodeId, incarnation, endpoint]);
  }

  /** Whether a position has a location. */
  has(i: number): boolean {
    return this.nodes[this.node[i] as number] !== undefined;
  }

  /** The address at a position. An address above 2^53 is not exact, but no machine has such memory. */
  addressAt(i: number): number {
    return (this.addrWords[i * 2] as number) + (this.addrWords[i * 2 + 1] as number) * 2 ** 32;
  }

  /** Sets the address at a position, a whole number below 2^53. */
  setAddress(i: number, address: number): void {
    this.addrWords[i * 2] = address >>> 0;
    this.addrWords[i * 2 + 1] = Math.floor(address / 2 ** 32);
  }

  /** The location at a position; null: there is none. */
  locationAt(i: number): DataLocation | null {
    const node = this.nodes[this.node[i] as number];
    if (node === undefined) return null;
    const flags = this.flags[i] as number;
    return new DataLocation({
      nodeId: node.nodeId,
      rdmaEndpoint: node.endpoint,
      remoteAddr: this.addr[i] as bigint,
      rkey: this.rkey[i] as number,
      length: this.length[i] as number,
      checksum: this.checksum[i] as number,
      incarnation: node.incarnation,
      generation: this.generation[i] as number,
      version: this.version[i] as number,
      stamp: this.stamp[i] as number,
      tail: this.tail[i] as number,
      expires: this.expires[i] as number,
      tier: flags & ON_DISK ? 'disk' : 'memory',
      kind: flags & NAMED ? 'named' : 'computed',
      setBy: this.setBy[i] as number,
    });
  }

  #set(i: number, location: DataLocation): void {
    const { remoteAddr, rkey, length, checksum } = location;
    if (typeof remoteAddr !== 'bigint' || remoteAddr < 0n || remoteAddr > U64_MAX) refuse('remoteAddr', remoteAddr);
    if (!isU32(rkey)) refuse('rkey', rkey);
    if (!isU32(checksum)) refuse('checksum', checksum);
    if (!isU32(location.setBy)) refuse('setBy', location.setBy);
    if (!isWholeNumber(length)) refuse('length', length);
    if (!isWholeNumber(location.generation)) refuse('generation', location.generation);
    if (!isVersion(location.version)) refuse('version', location.version);
    if (!isStamp(location.stamp)) refuse('stamp', location.stamp);
    if (!isStamp(location.tail)) refuse('tail', location.tail);
    if (!isVersion(location.expires)) refuse('expires', location.expires);
    this.addr[i] = remoteAddr;
    this.length[i] = length;
    this.generation[i] = location.generation;
    this.rkey[i] = rkey;
    this.checksum[i] = checksum;
    this.node[i] = this.#nodeIndex(location);
    this.version[i] = location.version;
    this.stamp[i] = location.stamp;
    this.tail[i] = location.tail;
    this.expires[i] = location.expires;
    this.setBy[i] = location.setBy;
    this.flags[i] = (location.tier === 'disk' ? ON_DISK : 0) | (location.kind === 'named' ? NAMED : 0);
  }

  /**
   * Index of the location's node in the node table. A batch names few nodes, and usually the same one as for the
   * previous location.
   */
  #nodeIndex({ nodeId, incarnation, rdmaEndpoint }: DataLocation): number {
    const known = this.#find({ nodeId, incarnation, endpoint: rdmaEndpoint });
    if (known >= 0) return known;
    if (!isNodeId(nodeId)) refuse('nodeId', nodeId);
    if (!isEndpoint(rdmaEndpoint)) refuse('rdmaEndpoint', rdmaEndpoint);
    if (!isWholeNumber(incarnation)) refuse('incarnation', incarnation);
    return this.nodes.push({ nodeId, incarnation, endpoint: rdmaEndpoint }) - 1;
  }

  #indexOf(node: LocationNode): number {
    const known = this.#find(node);
    return known >= 0 ? known : this.nodes.push(node) - 1;
  }

  #find({ nodeId, incarnation, endpoint }: LocationNode): number {
    for (let i = this.nodes.length - 1; i >= 0; i--) {
      const node = this.nodes[i] as LocationNode;
      if (node.nodeId === nodeId && node.incarnation === incarnation && node.endpoint === endpoint) return i;
    }
    return -1;
  }

  /** Leaves a position without a location. */
  #remove(i: number): void {
    this.version[i] = 0;
    this.expires[i] = 0;
    this.node[i] = NO_LOCATION;
  }

  #check(): void {
    for (let i = 0; i < this.count; i++) {
      const node = this.node[i] as number;
      if (node >= this.nodes.length && node !== NO_LOCATION) throw new ProtocolError(`locations: no node ${node}`);
      if (!isWholeNumber(this.length[i])) throw new ProtocolError(`locations: length ${this.length[i]}`);
      if (!isWholeNumber(this.generation[i])) throw new ProtocolError(`locations: generation ${this.generation[i]}`);
      if (!isStamp(this.stamp[i])) throw new ProtocolError(`locations: stamp ${this.stamp[i]}`);
      if (!isStamp(this.tail[i])) throw new ProtocolError(`locations: tail ${this.tail[i]}`);
      if ((this.flags[i] as number) > FLAGS_MAX) throw new ProtocolError(`locations: flags ${this.flags[i]}`);
      // A node with a wrong clock must not spoil the pages of other nodes.
      if (!isVersion(this.version[i]) || !isVersion(this.expires[i])) this.#remove(i);
    }
  }
}

function decodeNodes(nodes: unknown): LocationNode[] {
  if (!Array.isArray(nodes) || nodes.length > DIRECTORY_REQUEST_MAX_KEYS)
    throw new ProtocolError('node table: not a list');
  return nodes.map((entry: unknown) => {
    const [nodeId, incarnation, endpoint] = Array.isArray(entry) ? (entry as unknown[]) : [];
    if (!isNodeId(nodeId) || !isWholeNumber(incarnation) || !isEndpoint(endpoint)) {
      throw new ProtocolError('node table: not [id, incarnation, endpoint]');
    }
    return { nodeId, incarnation, endpoint };
  });
}

export function isNodeId(value: unknown): value is string {
  return typeof value === 'string' && value.length > 0 && Buffer.byteLength(value) <= NODE_ID_MAX_BYTES;
}

export function isWholeNumber(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isEndpoint(value: unknown): value is string {
  return typeof value === 'string' && value.length <= NODE_ENDPOINT_MAX_CHARACTERS;
}

function isStamp(value: unknown): boolean {
  return isWholeNumber(value) && value <= STAMP_MAX;
}

function isU32(value: unknown): boolean {
  return typeof value === 'number' && value >>> 0 === value;
}

function refuse(field: string, value: unknown): never {
  throw new ArgumentError(`a location's ${field} cannot be ${String(value)}`);
}
