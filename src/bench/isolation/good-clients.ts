import { MeshCacheClient } from '../../client/meshcache-client.js';
import { HostRegion } from '../../memory/host-region.js';
import { RedisConnection, redisCommand } from '../measuring/redis.js';
import { isStamped, stampPage } from '../measuring/store-pages.js';
import { namespaceOf, passed, type Target } from './raw-client.js';

const PAGE_BYTES = 64 * 2 ** 10;
const SMALL_PAGE_BYTES = 4 * 2 ** 10;
const PAGES = 64;
const BATCH_PAGES = 32;
/** Least time between the starts of two calls. Without pauses a client would measure its own load. */
const PACE_MS = 4;
const PONG = Buffer.from('+PONG\r\n');

/** Makes call number `count` of a well-behaved client. Resolves with whether its result was complete and correct. */
type Call = (count: number) => Promise<boolean>;

/** Well-behaved clients by name; each runs in a process of its own. */
export const GOOD_CLIENTS: Readonly<Record<string, (target: Target) => Promise<Call>>> = {
  pages: async (target) => {
    const client = await attach(target);
    const memory = HostRegion.allocate(2 * PAGE_BYTES, { shared: true });
    return async (count) => {
      const key = `page ${count % PAGES}`;
      stampPage(memory.bytes(0, PAGE_BYTES), count);
      if (!(await client.set(key, memory.addr, PAGE_BYTES))) return false;
      const isRead = await client.get(key, memory.addr + BigInt(PAGE_BYTES), PAGE_BYTES);
      return isRead === true && isStamped(memory.bytes(PAGE_BYTES, PAGE_BYTES), count);
    };
  },
  batches: async (target) => {
    const client = await attach(target);
    const memory = HostRegion.allocate(BATCH_PAGES * SMALL_PAGE_BYTES, { shared: true });
    const keys = Array.from({ length: BATCH_PAGES }, (_, i) => `small page ${i}`);
    const ptrs = keys.map((_, i) => memory.addr + BigInt(i * SMALL_PAGE_BYTES));
    const sizes = keys.map(() => SMALL_PAGE_BYTES);
    const all = (page: (bytes: Uint8Array, page: number) => unknown): unknown[] =>
      keys.map((_, i) => page(memory.bytes(i * SMALL_PAGE_BYTES, SMALL_PAGE_BYTES), i));
    all(stampPage);
    if (!(await client.batchSet(keys, ptrs, sizes)).every(Boolean)) throw new Error('the pages could not be set');
    return async () => {
      memory.bytes().fill(0);
      const found = await client.batchExists(keys);
      const results = await client.batchGet(keys, ptrs, sizes);
      return found === keys.length && results.every(Boolean) && all(isStamped).every(Boolean);
    };
  },
  ping: async (target) => {
    const client = await attach(target);
    const redis = await RedisConnection.open('127.0.0.1', target.respPort, 4096);
    await redis.exchange(redisCommand('AUTH', target.respPassword), 5);
    const ping = redisCommand('PING');
    return async () => (await client.ping()) && PONG.equals(await redis.exchange(ping, PONG.length));
  },
};

/** Times of the calls in one measurement. */
export interface CallTimes {
  readonly calls: number;
  readonly failures: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly worstMs: number;
}

/** Makes calls at a steady pace for `forMs` milliseconds. A call that takes longer than that delays the next one. */
export async function measureCalls(call: Call, forMs: number): Promise<CallTimes> {
  const times: number[] = [];
  let failures = 0;
  const untilMs = performance.now() + forMs;
  while (performance.now() < untilMs) {
    const startMs = performance.now();
    const isRight = await call(times.length).catch(() => false);
    const elapsedMs = performance.now() - startMs;
    times.push(elapsedMs);
    if (!isRight) failures++;
    if (elapsedMs < PACE_MS) await passed(PACE_MS - elapsedMs);
  }
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(share * times.length))] as number;
  return { calls: times.length, failures, p50Ms: at(0.5), p99Ms: at(0.99), worstMs: at(1) };
}

function attach({ clientSocket }: Target): Promise<MeshCacheClient> {
  return MeshCacheClient.connect({ socket: clientSocket, namespace: namespaceOf('good'), required: true });
}
