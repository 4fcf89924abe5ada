import type { ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import type { StoreNamespace } from '../../../src/store/namespace/store-namespace.js';
import { createStore, TestHostPool } from '../node/store-fixture.js';
import { content, freePort, until } from '../support.js';
import type { S3Server } from './s3-server.js';

export const PAGE = 16 * 2 ** 10;

/** A store with an object store, and a host pool of 128 pages. */
export interface ObjectNode {
  readonly store: MeshCacheStore;
  readonly host: TestHostPool;
}

/** Pages of a store, or of a client of one, with a host pool. */
export interface HostPages {
  readonly store: StoreNamespace;
  readonly host: TestHostPool;
}

/** Starts a node, in a cluster of its own unless `port` is that of another one; it ends with the test. */
export async function objectNode(
  t: Pick<ExecutionContext, 'teardown'>,
  s3: S3Server,
  extra: Record<string, unknown> = {},
  port?: number,
): Promise<ObjectNode> {
  const settings = { ...s3.settings(), global_segment_size: '4mb', ...extra };
  const store = await createStore(port ?? (await freePort()), settings);
  t.teardown(() => store.close());
  const host = new TestHostPool(128, PAGE, 1);
  await store.registerMemPoolHost(host);
  return { store, host };
}

/** Sets computed pages `from` to `to - 1`. */
export async function setPages({ store, host }: HostPages, from: number, to: number): Promise<boolean[]> {
  const keys = keysOf(from, to);
  for (const i of keys.keys()) host.component(i, 0).set(content(from + i, PAGE));
  return store.batchSetV1(keys, host.indices(0, keys.length));
}

/** Which of the pages are read; wrong bytes throw. */
export async function getPages({ store, host }: HostPages, from: number, to: number): Promise<boolean[]> {
  const keys = keysOf(from, to);
  for (const i of keys.keys()) host.component(i, 0).fill(0);
  const results = await store.batchGetV1(keys, host.indices(0, keys.length));
  for (const [i, isRead] of results.entries()) {
    if (!isRead || Buffer.compare(host.component(i, 0), content(from + i, PAGE)) === 0) continue;
    throw new Error(`${keys[i]}: wrong bytes`);
  }
  return results;
}

export function keysOf(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, i) => `page-${from + i}`);
}

export function all(count: number, value: boolean): boolean[] {
  return new Array<boolean>(count).fill(value);
}

/** Stores pages that the store does not have yet: they are set and read once, and sent behind that. */
export async function storePages(writer: ObjectNode, s3: S3Server, from: number, to: number): Promise<void> {
  const sent = s3.count('PUT', /pages/);
  await setPages(writer, from, to);
  // On a machine that stalls, a page may be skipped; it is queued again when it is read again.
  await until(async () => {
    await getPages(writer, from, to);
    await settled(writer);
    return s3.count('PUT', /pages/) >= sent + to - from;
  });
}

/** Waits until nothing is on its way to the object store. */
export async function settled({ store }: ObjectNode): Promise<void> {
  await until(async () => /meshcache_object_queue_pages\{[^}]*\} 0$/m.test(await store.metrics.renderPrometheus()));
}

/** The value of a metric with these labels. */
export async function metric({ store }: ObjectNode, name: string, labels = ''): Promise<number> {
  const text = await store.metrics.renderPrometheus();
  const line = text.split('\n').find((each) => each.startsWith(`${name}{`) && each.includes(labels));
  return Number(line?.split(' ').at(-1) ?? Number.NaN);
}
