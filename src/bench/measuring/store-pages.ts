import { createHash } from 'node:crypto';
import type { StorageConfig } from '../../config.js';
import { HostRegion } from '../../memory/host-region.js';
import type { MeshCacheStore } from '../../node/meshcache-store.js';

/** A cluster of two nodes: one in the serving process, and one that exchanges pages with it. */
export interface BenchCluster {
  readonly discoveryAddr: string;
  /** Configuration keys that both nodes share. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** Commands of the store benchmarks to their serving process. */
export type PeerCommand =
  /** Starts one node in each of these clusters. */
  | {
      readonly kind: 'start';
      readonly clusters: readonly BenchCluster[];
      readonly poolBytes: number;
      readonly workBytes: number;
    }
  /** Drops the pages of the previous `publish`, then sets new ones. */
  | { readonly kind: 'publish'; readonly pageBytes: number; readonly pages: number; readonly isComputed?: boolean };

export interface PeerAnswer {
  readonly error?: string;
  /** Port of the plain socket server that holds the same pages. */
  readonly plainPort?: number;
}

/** Most bytes of pages that are stamped and set at a time. */
const SET_MAX_BYTES = 16 * 2 ** 20;
/** Distance between two stamps in a page. */
const STAMP_DISTANCE_BYTES = 4096;
const MEMBERS_TIMEOUT_MS = 15_000;

/**
 * Configuration of a node in a benchmark's cluster. All nodes share one key space. `extra` overrides configuration
 * keys.
 */
export function plainStorage(
  discoveryAddr: string,
  poolBytes: number,
  extra: Readonly<Record<string, unknown>> = {},
): StorageConfig {
  return {
    tpRank: 0,
    tpSize: 1,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: true,
    extraConfig: {
      discovery_addr: discoveryAddr,
      local_hostname: '127.0.0.1',
      allow_unauthenticated: true,
      protocol: 'tcp',
      global_segment_size: poolBytes,
      // The pool is filled to the last page; with `lru`, new pages then replace the oldest.
      eviction_policy: 'lru',
      metrics_enabled: false,
      ...extra,
    },
  };
}

/** Configuration of either of two nodes, one of which reads the other's pages. */
export function benchStorage(
  discoveryAddr: string,
  poolBytes: number,
  extra: Readonly<Record<string, unknown>> = {},
): StorageConfig {
  return plainStorage(discoveryAddr, poolBytes, {
    // With two replicas, each of the two nodes would own every key, and no lookup would cross to the other process.
    directory_replicas: 1,
    heartbeat_interval: 0.2,
    member_ttl: 10,
    ...extra,
  });
}

/** Realistic keys: content hashes of 64 hexadecimal characters. */
export function benchKeys(pageBytes: number, pages: number): string[] {
  return Array.from({ length: pages }, (_, page) =>
    createHash('sha256').update(`bench ${pageBytes} ${page}`).digest('hex'),
  );
}

/** Stamps a page with its number and the offset, once every STAMP_DISTANCE_BYTES. */
export function stampPage(bytes: Uint8Array, page: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += STAMP_DISTANCE_BYTES) {
    view.setUint32(at, page, true);
    view.setUint32(at + 4, at, true);
  }
}

/** Whether every stamp of page number `page` is in place. */
export function isStamped(bytes: Uint8Array, page: number): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += STAMP_DISTANCE_BYTES) {
    if (view.getUint32(at, true) !== page || view.getUint32(at + 4, true) !== at) return false;
  }
  return true;
}

/** Sets one stamped page under each key, as named entries or as computed pages. Rejects if one could not be set. */
export async function publishPages(
  store: MeshCacheStore,
  keys: readonly string[],
  pageBytes: number,
  { isComputed = false } = {},
): Promise<void> {
  const batchPages = Math.max(1, Math.floor(SET_MAX_BYTES / pageBytes));
  using source = HostRegion.allocate(batchPages * pageBytes);
  if (isComputed) await store.registerMemPoolHost(destinationPool(source, pageBytes));
  for (let first = 0; first < keys.length; first += batchPages) {
    const batch = keys.slice(first, first + batchPages);
    for (let i = 0; i < batch.length; i++) stampPage(source.bytes(i * pageBytes, pageBytes), first + i);
    const ptrs = batch.map((_, i) => source.addr + BigInt(i * pageBytes));
    const results = isComputed
      ? await store.batchSetV1([...batch], [...batch.keys()])
      : await store.batchSet(batch, ptrs, Array(batch.length).fill(pageBytes) as number[]);
    const failed = results.filter((isSet) => !isSet).length;
    if (failed > 0) throw new Error(`${failed} pages of ${pageBytes} bytes could not be set`);
  }
}

/** A host pool whose page `i` is at offset `i * pageBytes` of the region. */
export function destinationPool(
  region: HostRegion,
  pageBytes: number,
): Parameters<MeshCacheStore['registerMemPoolHost']>[0] {
  return {
    region,
    pageSize: 1,
    getPageBufferMeta(slots) {
      const ptrs: bigint[] = [];
      for (let i = 0; i < slots.length; i++) ptrs.push(region.addr + BigInt(Number(slots[i]) * pageBytes));
      return { ptrs, sizes: Array(slots.length).fill(pageBytes) as number[] };
    },
  };
}

/** Resolves when the node knows `count` nodes, itself included; rejects after MEMBERS_TIMEOUT_MS. */
export async function awaitMembers(store: MeshCacheStore, count: number): Promise<void> {
  const untilMs = performance.now() + MEMBERS_TIMEOUT_MS;
  while (store.runtime.members().size < count) {
    if (performance.now() > untilMs) throw new Error('the nodes did not find each other');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
