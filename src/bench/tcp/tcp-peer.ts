import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { TcpTransport } from '../../transport/tcp/tcp-transport.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { servePlainly } from '../measuring/plain-pair.js';
import { stampPage } from '../measuring/store-pages.js';

export type TcpPeerCommand =
  | { readonly kind: 'start'; readonly poolBytes: number }
  /** Stamps the pool as pages of this size. */
  | { readonly kind: 'stamp'; readonly pageBytes: number }
  /** Answers, then keeps the main thread busy. */
  | { readonly kind: 'busy'; readonly how: 'blocked' | 'computing'; readonly ms: number }
  /** Answers when the main thread has time. */
  | { readonly kind: 'settle' };

export interface TcpPeerAnswer {
  readonly error?: string;
  readonly endpoint?: string;
  /** Address as decimal text. */
  readonly addr?: string;
  readonly rkey?: number;
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
      const transport = await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment() });
      const { addr, rkey } = transport.registerMr(pool.addr, pool.length);
      const plainPort = await servePlainly(pool.bytes());
      return { endpoint: transport.localEndpoint(), addr: addr.toString(), rkey, plainPort };
    }
    if (command.kind === 'settle') return {};
    if (command.kind === 'busy') {
      // Starts after the answer has been sent.
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

/** Keeps this thread from all other work, asleep or computing. */
function beBusy({ how, ms }: { readonly how: 'blocked' | 'computing'; readonly ms: number }): void {
  if (how === 'blocked') {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    return;
  }
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}
