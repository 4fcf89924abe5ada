import { createHash } from 'node:crypto';
import type { StorageConfig } from '../config.js';

/** What the store benchmark and its serving process say and know of each other. */
export type PeerCommand =
  /** Joins each of these clusters with a node of its own. */
  | {
      readonly kind: 'start';
      readonly discoveryAddrs: readonly string[];
      readonly poolBytes: number;
      readonly workBytes: number;
    }
  /** Drops what was published before; answers when every page is set. */
  | { readonly kind: 'publish'; readonly pageBytes: number; readonly pages: number };

export interface PeerAnswer {
  readonly error?: string;
  /** Where the plain socket server listens that holds the same pages. */
  readonly plainPort?: number;
}

/** Stamps stand this far from each other in a page. */
const STAMP_DISTANCE_BYTES = 4096;

/** A node of the benchmark's cluster; the same key space for all of them. */
export function benchStorage(
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
      protocol: 'tcp',
      global_segment_size: poolBytes,
      // Of two nodes with two replicas each would own every key: no lookup would cross to the other process.
      directory_replicas: 1,
      heartbeat_interval: 0.2,
      member_ttl: 10,
      metrics_enabled: false,
      ...extra,
    },
  };
}

/** Keys as they are in practice: content hashes of 64 hexadecimal characters. */
export function benchKeys(pageBytes: number, pages: number): string[] {
  return Array.from({ length: pages }, (_, page) =>
    createHash('sha256').update(`bench ${pageBytes} ${page}`).digest('hex'),
  );
}

/** Marks a page with its number, every few kilobytes. */
export function stampPage(bytes: Uint8Array, page: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += STAMP_DISTANCE_BYTES) {
    view.setUint32(at, page, true);
    view.setUint32(at + 4, at, true);
  }
}

/** Whether every mark of the page is in place. */
export function isStamped(bytes: Uint8Array, page: number): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += STAMP_DISTANCE_BYTES) {
    if (view.getUint32(at, true) !== page || view.getUint32(at + 4, true) !== at) return false;
  }
  return true;
}
