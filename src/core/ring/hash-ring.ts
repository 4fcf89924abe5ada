import { NODE_ID_MAX_BYTES, RING_MAX_POINTS, VNODES_DEFAULT_COUNT } from '../../base/core-limits.js';
import { ArgumentError, ClosedError } from '../../base/errors.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { type Core, type CoreOptions, defaultCore } from '../binding/core.js';
import type { Keys } from '../binding/key-batch.js';
import { UTF8_BYTES_PER_UNIT } from '../binding/key-text.js';
import type { RingPoints } from '../binding/ring-points.js';

const OPTION_NAMES: ReadonlySet<string> = new Set(['core']);

/** Stands for no node in batch results, if a key has fewer owners than requested. */
export const NO_NODE = 0xffffffff;

/**
 * Consistent hash ring with `vnodes` points for each node; the owner of a key is the first point clockwise. Placement
 * is part of the wire contract (`assembly/ring.ts`): the same nodes give the same owners on every machine and in every
 * version.
 *
 * @example
 * import { ConsistentHashRing } from 'meshcache/core';
 *
 * const ring = new ConsistentHashRing();
 * ring.setNodes(['node-0', 'node-1', 'node-2']);
 * const owner: string | undefined = ring.getNode('page-1');
 * const replicas: string[] = ring.getNodes('page-1', 2);
 */
export class ConsistentHashRing {
  readonly vnodes: number;
  /** @internal */
  protected readonly core: Core;
  /**
   * The points, which must be freed even if the ring is garbage-collected first; `points` is undefined after {@link
   * free}.
   */
  private readonly held: { points: RingPoints | undefined };

  /**
   * `vnodes`: default 160, as for nodes; all rings of a cluster must use the same number. Throws `ArgumentError` unless
   * it is an integer of at least 1.
   */
  constructor(vnodes = VNODES_DEFAULT_COUNT, options: CoreOptions = {}) {
    if (!Number.isSafeInteger(vnodes) || vnodes < 1 || vnodes > RING_MAX_POINTS) {
      throw new ArgumentError(`vnodes must be an integer of 1 to ${RING_MAX_POINTS}, got ${String(vnodes)}`);
    }
    checkNames('ConsistentHashRing', options, OPTION_NAMES);
    this.vnodes = vnodes;
    this.core = options.core ?? defaultCore();
    const { ringPoints } = this.core;
    const held: typeof this.held = { points: ringPoints.hold(vnodes, []) };
    this.held = held;
    this.core.freeWhenCollected(this, () => {
      if (held.points !== undefined) ringPoints.release(held.points);
    });
  }

  /** The nodes in the order of their UTF-8 bytes; batch results hold indices into this list. */
  get nodes(): readonly string[] {
    return this.held.points?.nodeIds ?? [];
  }

  /**
   * Replaces the nodes; order and duplicates do not matter. With `zones` (zone by node id), each further owner of a key
   * is in another zone than the owners before it, as far as possible; nodes missing from `zones` share one extra zone.
   * The first owner does not depend on zones. Throws `ArgumentError` before anything changes.
   */
  setNodes(nodeIds: readonly string[], zones?: ReadonlyMap<string, string>): void {
    if (zones !== undefined) checkZones(zones);
    const former = this.points();
    const sorted = sortedDistinct(checkNodeIds(nodeIds));
    if (sorted.length * this.vnodes > RING_MAX_POINTS) {
      throw new ArgumentError(
        `got ${sorted.length} nodes of ${this.vnodes} vnodes each, at most ${RING_MAX_POINTS} points are allowed`,
      );
    }
    const { ringPoints } = this.core;
    this.held.points = ringPoints.hold(this.vnodes, sorted, zones);
    ringPoints.release(former);
  }

  /** The owner of a key; undefined when the ring is empty. */
  getNode(key: string): string | undefined {
    const { handle, nodeIds } = this.points();
    const area = this.core.area;
    area.writeOne(key);
    return nodeIds[this.core.exports.ringOwner(handle, area.keys, area.keyBytes)];
  }

  /** The owners of a key: distinct nodes clockwise, the first owner first; at most the number of nodes. */
  getNodes(key: string, n: number): string[] {
    if (typeof n !== 'number') throw new ArgumentError(`the number of nodes must be a number, got ${shown(n)}`);
    const { nodeIds } = this.points();
    const indices = this.getNodesBatch([key], Math.min(n, nodeIds.length));
    return Array.from(indices, (index) => nodeIds[index] as string);
  }

  /**
   * For each key, `n` indices into {@link nodes}: its owners in the order of {@link getNodes}, then {@link NO_NODE}.
   * The caller owns the array.
   */
  getNodesBatch(keys: Keys, n: number): Uint32Array {
    return this.ownersAt((resultBytes) => this.writePositions(keys, resultBytes), n);
  }

  /** Like {@link getNodesBatch}, but clockwise, ignoring zones. */
  getNextNodesBatch(keys: Keys, n: number): Uint32Array {
    return this.ownersAt((resultBytes) => this.writePositions(keys, resultBytes), n, 1);
  }

  /** Frees the memory of the ring. Idempotent. Without it, the memory is freed when the object is collected. */
  free(): void {
    const { points } = this.held;
    if (points === undefined) return;
    this.core.forget(this);
    this.core.ringPoints.release(points);
    this.held.points = undefined;
  }

  /**
   * The owners at the positions that `write` writes into the core's area, with room for `resultBytes` per key.
   *
   * @internal
   */
  protected ownersAt(write: (resultBytes: number) => void, n: number, isPlain = 0): Uint32Array {
    const { handle, nodeIds } = this.points();
    if (!Number.isSafeInteger(n) || n < 0 || n > RING_MAX_POINTS) {
      throw new ArgumentError(`the number of nodes must be an integer from 0 on, got ${String(n)}`);
    }
    // Owners beyond the number of nodes are NO_NODE in any case, so no WASM memory is reserved for them.
    const asked = Math.min(n, Math.max(1, nodeIds.length));
    const area = this.core.area;
    write(asked * 4);
    this.core.exports.ringOwnersBatch(handle, area.hashes, area.count, asked, isPlain, area.results);
    const start = area.results >>> 2;
    const found = area.u32.slice(start, start + area.count * asked);
    return asked === n ? found : widen(found, asked, n);
  }

  /**
   * Writes the positions of the keys on this ring.
   *
   * @internal
   */
  protected writePositions(keys: Keys, resultBytes: number): void {
    this.core.area.writePositions(keys, resultBytes);
  }

  /** @internal */
  protected points(): RingPoints {
    const { points } = this.held;
    if (points === undefined) throw new ClosedError('the ring');
    return points;
  }
}

/** Widens rows of `from` entries to `to` entries, padded with {@link NO_NODE}. */
function widen(rows: Uint32Array, from: number, to: number): Uint32Array {
  const wide = new Uint32Array((rows.length / from) * to).fill(NO_NODE);
  for (let row = 0; row * from < rows.length; row++) {
    wide.set(rows.subarray(row * from, (row + 1) * from), row * to);
  }
  return wide;
}

/**
 * Checks a list of node ids. A string instead of a list is refused: it is iterable, too, and each of its characters
 * would become a node.
 */
function checkNodeIds(nodeIds: readonly string[]): readonly string[] {
  const isSequence = typeof nodeIds === 'object' && nodeIds !== null && Symbol.iterator in nodeIds;
  if (!isSequence)
    throw new ArgumentError(`the nodes must be a list of node ids, such as ['node-0'], got ${shown(nodeIds)}`);
  const ids = [...nodeIds];
  for (const id of ids) {
    if (typeof id !== 'string' || !id.isWellFormed()) {
      throw new ArgumentError(`a node id must be well-formed text, got ${shown(id)}`);
    }
    // Most ids are so short that they need not be encoded to be measured.
    const bytes = id.length * UTF8_BYTES_PER_UNIT <= NODE_ID_MAX_BYTES ? 0 : new TextEncoder().encode(id).length;
    if (bytes > NODE_ID_MAX_BYTES) {
      throw new ArgumentError(`got a node id of ${bytes} bytes, at most ${NODE_ID_MAX_BYTES} are allowed`);
    }
  }
  return ids;
}

function checkZones(zones: ReadonlyMap<string, string>): void {
  if (typeof zones?.get !== 'function')
    throw new ArgumentError(`the zones must be a map of node ids to zones, got ${shown(zones)}`);
  for (const zone of zones.values()) {
    if (typeof zone !== 'string') throw new ArgumentError(`a zone must be text, got ${shown(zone)}`);
  }
}

/**
 * Sorts the ids and removes duplicates. A list that is already sorted, such as that of a former ring, is only checked.
 */
function sortedDistinct(nodeIds: readonly string[]): readonly string[] {
  for (let i = 1; i < nodeIds.length; i++) {
    if (compareCodePoints(nodeIds[i - 1] as string, nodeIds[i] as string) >= 0) {
      return [...new Set(nodeIds)].sort(compareCodePoints);
    }
  }
  return nodeIds;
}

/** Compares by UTF-8 bytes, which is the order of code points; JavaScript's string order differs beyond U+D7FF. */
function compareCodePoints(a: string, b: string): number {
  const end = Math.min(a.length, b.length);
  for (let i = 0; i < end; i++) {
    if (a.charCodeAt(i) === b.charCodeAt(i)) continue;
    return sortable(a.charCodeAt(i)) - sortable(b.charCodeAt(i));
  }
  return a.length - b.length;
}

/** Makes UTF-16 units order like their code points: surrogates stand for code points above all others. */
function sortable(unit: number): number {
  return unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit;
}
