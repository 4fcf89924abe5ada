import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { PauseWatch } from '../../../src/base/concurrency/pause-watch.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import type { ClientLimits } from '../../../src/clients/client-limits.js';
import { ClientServer } from '../../../src/clients/client-server.js';
import { ClientNamespace, type FollowPages } from '../../../src/clients/requests/client-namespace.js';
import { encodeRegionRequest, encodeSetBytes, RequestType } from '../../../src/clients/wire/messages.js';
import { type Keys, stringsOf } from '../../../src/core/binding/key-batch.js';
import { KeyEncoder } from '../../../src/core/index.js';
import { Users } from '../../../src/net/users.js';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import type { CallTime } from '../../../src/store/call/call-options.js';
import type { CallerPage } from '../../../src/store/call/caller-page.js';
import type { MayTake } from '../../../src/store/copied-reads.js';
import { type PageCare, StoredPages } from '../../../src/store/namespace/namespace-pages.js';
import type { PageStore } from '../../../src/store/page-store.js';
import { createStore } from '../node/store-fixture.js';
import { testEnvironment } from '../rpc/server.js';
import { freePort, until } from '../support.js';
import type { TestClient } from './test-client.js';

/** A folder that is removed with the test. */
export function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-clients-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Starts `count` nodes of one cluster, each with a client socket. */
export async function startNodes(
  t: ExecutionContext,
  count = 1,
  extra: Record<string, unknown> = {},
): Promise<MeshCacheStore[]> {
  const port = await freePort();
  const path = folder(t);
  const stores: MeshCacheStore[] = [];
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  for (let i = 0; i < count; i++) {
    stores.push(await createStore(port, { client_socket: join(path, `node-${i}.sock`), ...extra }));
  }
  await until(() => stores.every((store) => store.stats().members === count));
  return stores;
}

export async function startNode(t: ExecutionContext, extra: Record<string, unknown> = {}): Promise<MeshCacheStore> {
  const [store] = await startNodes(t, 1, extra);
  return store as MeshCacheStore;
}

/** The place of one page in memory, piece by piece. */
export type Piece = readonly [regionId: number, offset: number, length: number];

/** The body of a GET or SET; all pages have the same number of pieces. */
export function regionBody(
  keys: readonly string[],
  pages: readonly (readonly Piece[])[],
  { pool = '', isNamed = false }: { readonly pool?: string; readonly isNamed?: boolean } = {},
): Buffer {
  const rows = pages.flat();
  const pieces = {
    pieceCount: pages[0]?.length ?? 1,
    regionIds: rows.map(([id]) => id),
    offsets: rows.map(([, offset]) => offset),
    lengths: rows.map(([, , length]) => length),
  };
  return encodeRegionRequest({ pool, isNamed, keys: [...keys], pieces });
}

export function setBytesBody(
  pages: Readonly<Record<string, Uint8Array>>,
  { pool = '', isNamed = false }: { readonly pool?: string; readonly isNamed?: boolean } = {},
): Buffer {
  return encodeSetBytes({ pool, isNamed, keys: Object.keys(pages), pages: Object.values(pages) });
}

/** Sets pages by bytes; resolves with the flags of the answer. */
export async function setBytes(client: TestClient, pages: Readonly<Record<string, Uint8Array>>): Promise<number[]> {
  return [...(await client.ok(RequestType.setBytes, setBytesBody(pages)))];
}

/** A call of a stub of the store, which the test ends. */
export interface StoreCall {
  readonly method: 'get' | 'set' | 'exists' | 'getCopyWithin' | 'delete' | 'clear' | 'prefetch';
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly signal: AbortSignal | undefined;
  readonly time: CallTime | undefined;
  /** Takes memory for the page of `getCopyWithin`. */
  readonly mayTake: MayTake | undefined;
  end(result: unknown): void;
  fail(error: unknown): void;
}

/** A store whose calls end when a test says so. Calls that can be aborted end as misses then. */
export class HeldStore {
  /** All calls so far. */
  readonly calls: StoreCall[] = [];
  /** Ends calls at once; undefined leaves them pending. */
  answer: ((call: StoreCall) => unknown) | undefined;

  get pages(): PageStore {
    const take =
      (method: StoreCall['method']) =>
      (first: Keys | string, second?: unknown, third?: unknown): Promise<unknown> => {
        const keys = typeof first === 'string' ? [first] : stringsOf(first);
        const options = (third ?? second) as { signal?: AbortSignal; time?: CallTime; mayTake?: MayTake } | undefined;
        const pages = Array.isArray(second) ? (second as CallerPage[]) : [];
        return new Promise((resolve, reject) => {
          const signal = options?.signal;
          const { time, mayTake } = options ?? {};
          const call: StoreCall = { method, keys, pages, signal, time, mayTake, end: resolve, fail: reject };
          const onAbort = (): void => resolve(method === 'getCopyWithin' ? null : keys.map(() => false));
          this.calls.push(call);
          const result = this.answer?.(call);
          if (result !== undefined) resolve(result);
          else signal?.addEventListener('abort', onAbort, { once: true });
        });
      };
    const methods = ['get', 'set', 'exists', 'getCopyWithin', 'delete', 'clear', 'prefetch'] as const;
    return Object.fromEntries(methods.map((method) => [method, take(method)])) as unknown as PageStore;
  }

  /** The calls of one method. */
  of(method: StoreCall['method']): StoreCall[] {
    return this.calls.filter((call) => call.method === method);
  }
}

/** The page events of a store that has closed. */
export const noEvents: FollowPages = async function* () {};

/** Starts a client socket over a store that does nothing by itself. */
export async function startServer(
  t: ExecutionContext,
  {
    limits,
    env = testEnvironment(),
    events,
  }: { limits?: Partial<ClientLimits>; env?: ReturnType<typeof testEnvironment>; events?: FollowPages } = {},
) {
  const store = new HeldStore();
  const pauses = new PauseWatch(env.clock);
  const follow = events ?? noEvents;
  const encoder = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false });
  const care = { prefetching: store.pages, pins: { end() {} } } as unknown as PageCare;
  const server = await ClientServer.listen(
    { path: join(folder(t), 'node.sock'), mode: 0o600, limits },
    {
      env: { ...env, log: silentLogger },
      pauses,
      users: new Users(),
      nodeId: 'node',
      packageVersion: '0',
      ownTag: '',
      namespaceOf: () =>
        new ClientNamespace(new StoredPages(store.pages, encoder, care), {
          holdersOf: async (keys) => keys.map(() => []),
          follow,
        }),
      nodeStats: () => ({}),
    },
  );
  t.teardown(() => {
    for (const call of store.calls) call.fail(new Error('the test has ended'));
    pauses.close();
    return server.close();
  });
  return { server, store, env, path: server.path };
}
