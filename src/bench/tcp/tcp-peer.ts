import { crc32 } from '../../memory/checksum.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { TcpTransport } from '../../transport/tcp/tcp-transport.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { servePlainly } from '../measuring/plain-pair.js';
import { stampPage } from '../measuring/store-pages.js';

export const BATCH_PAGES = 128;

/** Stamps the bytes of a page. */
export function stamped(bytes: Uint8Array, page: number): Uint8Array {
  stampPage(bytes, page);
  return bytes;
}

/** The CRC-32 of each stamped page. */
export function checksums(pages: number, pageBytes: number): Uint32Array {
  const bytes = new Uint8Array(pageBytes);
  return Uint32Array.from({ length: pages }, (_, page) => crc32(stamped(bytes, page)));
}

/** The items in batches of pages. */
export function batchesOf<T>(items: readonly T[]): T[][] {
  const batches: T[][] = [];
  for (let first = 0; first < items.length; first += BATCH_PAGES) batches.push(items.slice(first, first + BATCH_PAGES));
  return batches;
}

export type TcpPeerCommand =
  /** Serves a pool by several transports, one for each number of threads. */
  | { readonly kind: 'start'; readonly poolBytes: number; readonly threads: readonly number[] }
  /** Fills the pool with stamped pages of this size. */
  | { readonly kind: 'stamp'; readonly pageBytes: number }
  /** Answers, then keeps the main thread busy. */
  | { readonly kind: 'busy'; readonly how: 'blocked' | 'computing'; readonly ms: number }
  /** Answers once the main thread is free again. */
  | { readonly kind: 'settle' };

/** The pool as one transport serves it. */
export interface ServedPool {
  readonly endpoint: string;
  readonly rkey: number;
}

export interface TcpPeerAnswer {
  readonly error?: string;
  /** Where each transport serves the pool. */
  readonly served?: readonly ServedPool[];
  /** Address of the pool, as decimal text. */
  readonly addr?: string;
  readonly plainPort?: number;
}

/**
 * The serving process of the TCP benchmark: a pool that a transport serves, and a plain socket server on the main
 * thread.
 */
export function tcpPeer(): ExecuteCommand<TcpPeerCommand, TcpPeerAnswer> {
  let pool: HostRegion | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      pool = HostRegion.allocate(command.poolBytes);
      await pool.prefault();
      const served: ServedPool[] = [];
      for (const threads of command.threads) {
        const transport = await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment(), threads });
        const { rkey } = transport.registerMr(pool.addr, pool.length);
        served.push({ endpoint: transport.localEndpoint(), rkey });
      }
      const plainPort = await servePlainly(pool.bytes());
      return { served, addr: pool.addr.toString(), plainPort };
    }
    if (command.kind === 'settle') return {};
    if (command.kind === 'busy') {
      // The answer must be sent before the thread gets busy.
      setTimeout(() => beBusy(command), 0);
      return {};
    }
    if (pool === undefined) throw new Error('stamp before start');
    const { pageBytes } = command;
    for (let page = 0; (page + 1) * pageBytes <= pool.length; page++) {
      stampPage(pool.bytes(page * pageBytes, pageBytes), page);
    }
    return {};
  };
}

/** Blocks this thread for `ms` milliseconds, asleep or computing. */
function beBusy({ how, ms }: { readonly how: 'blocked' | 'computing'; readonly ms: number }): void {
  if (how === 'blocked') {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    return;
  }
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}
