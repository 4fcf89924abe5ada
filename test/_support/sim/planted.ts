import { createRequire, syncBuiltinESMExports } from 'node:module';
import { HybridClock } from '../../../src/base/concurrency/hybrid-clock.js';
import type { Environment } from '../../../src/base/environment/environment.js';
import type { Files } from '../../../src/base/environment/files.js';
import { READ_STALL_TIMEOUT_MS, RPC_CALL_TIMEOUT_MS, RPC_SILENCE_MAX_MS } from '../../../src/base/limits.js';
import { pickKeys, stringsOf } from '../../../src/core/binding/key-batch.js';
import { DirectoryClient } from '../../../src/directory/client.js';
import { Taken } from '../../../src/directory/messages/taken.js';
import { OwnerChannels } from '../../../src/directory/owners/owner-channels.js';
import { KnownClears } from '../../../src/directory/shard/known-clears.js';
import { LocationLists } from '../../../src/directory/shard/location-lists.js';
import { DirectoryShard } from '../../../src/directory/shard/shard.js';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { PageStamps } from '../../../src/pool/page-stamps.js';
import { PublishedPool } from '../../../src/pool/published-pool.js';
import { ExpiryHeap } from '../../../src/pool/slots/expiry-heap.js';
import type { ViolationKind } from '../../../src/sim/check/violations.js';
import type { FaultKind } from '../../../src/sim/scenario/faults.js';
import type { ScenarioInit } from '../../../src/sim/scenario/scenario.js';
import { MIXED, type MixedWorkload } from '../../../src/sim/scenario/workload.js';
import { PageEvents } from '../../../src/store/events/page-events.js';
import { PageStatements } from '../../../src/store/ground/page-statements.js';
import { StoreNamespace } from '../../../src/store/namespace/store-namespace.js';
import { PagePins } from '../../../src/store/pins/page-pins.js';

/** A bug of the program that is planted for one run. */
export interface PlantedBug {
  readonly name: string;
  /** Kinds of violations of which the simulation must find one. */
  readonly found: readonly ViolationKind[];
  /** Kinds of faults; default: none. */
  readonly kinds?: readonly FaultKind[];
  readonly scenario?: ScenarioInit;
  /** Plants the bug in the product's classes; the result removes it. */
  readonly plant?: () => () => void;
  /** Alternatively, plants it in a store's environment. */
  readonly environment?: (env: Environment) => Partial<Environment>;
  /** Alternatively, works with each store. */
  readonly onStore?: (store: MeshCacheStore, env: Environment) => void;
}

const zlib = createRequire(import.meta.url)('node:zlib') as { crc32: (bytes: Uint8Array, seed?: number) => number };

function mixed(changes: Partial<MixedWorkload>): MixedWorkload {
  return { ...MIXED, pauseMaxMs: 200, ...changes };
}

/** Files with another `open`. */
function filesWith(files: Files, open: Files['open']): Files {
  return new Proxy(files, {
    get(target, name) {
      if (name === 'open') return open;
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Replaces a method of a class; the result restores it. */
function replace<T extends object, K extends keyof T>(prototype: T, name: K, make: (real: T[K]) => T[K]): () => void {
  const real = prototype[name];
  prototype[name] = make(real);
  return () => {
    prototype[name] = real;
  };
}

/** Deadlines of a call and of a silent connection. */
const DEADLINES_MS: ReadonlySet<number> = new Set([RPC_CALL_TIMEOUT_MS, RPC_SILENCE_MAX_MS, READ_STALL_TIMEOUT_MS]);
const WITH_DISK: ScenarioInit = { shape: { diskPages: 200 } };
/** Pages of each node that others copy, and that it clears often. */
const CLEARED_COPIES: ScenarioInit = {
  shape: { config: { promote_hot_reads: true, directory_replicas: 1 } },
  workload: mixed({ ownKeys: 8, deleteOneIn: 0, clearOneIn: 20, pinEveryMs: 50, pauseMaxMs: 20 }),
};
const nothing = (): void => {};

export const PLANTED_BUGS: readonly PlantedBug[] = [
  {
    name: 'some pages are announced nowhere, and that is called a success',
    found: ['lost'],
    plant: () =>
      replace(DirectoryClient.prototype, 'state', (state) => {
        return async function (this: DirectoryClient, asked, columns, options) {
          const keys = stringsOf(asked);
          const isLost = (key: string | undefined) => key?.endsWith('2') === true;
          const told = keys.map((_, i) => i).filter((i) => !isLost(keys[i]));
          const taken = [...(await state.call(this, pickKeys(asked, told), columns.pick(told), options))];
          return Uint8Array.from(keys, (key) => (isLost(key) ? Taken.taken : (taken.shift() as number)));
        };
      }),
  },
  {
    name: 'a node does not drop what was overwritten elsewhere',
    found: ['order', 'disagree'],
    plant: () => replace(PageStatements.prototype, 'drop', () => async () => {}),
  },
  {
    name: 'the stamp of a freed page is not destroyed, and its location is stale',
    found: ['order', 'bytes'],
    plant: () => {
      const undo = [
        replace(PageStamps.prototype, 'destroy', () => nothing),
        replace(DirectoryShard.prototype, 'delete', () => nothing),
        replace(DirectoryShard.prototype, 'discard', () => nothing),
      ];
      return () => {
        for (const each of undo) each();
      };
    },
    scenario: { workload: mixed({ deleteOneIn: 8 }) },
  },
  {
    name: 'directory shards forget versions',
    found: ['order', 'disagree'],
    plant: () =>
      replace(DirectoryShard.prototype, 'put', (put) => {
        return function (this: DirectoryShard, keys, locations, options) {
          locations.version.fill(0);
          return put.call(this, keys, locations, options);
        };
      }),
  },
  {
    name: 'some statements to other nodes are not sent, and called taken',
    found: ['lost', 'order', 'disagree'],
    plant: () => {
      let count = 0;
      return replace(OwnerChannels.prototype, 'put', (put) => {
        return async function (this: OwnerChannels, ownerId, keys, columns, unlessHeld) {
          if (++count % 3 !== 0) return put.call(this, ownerId, keys, columns, unlessHeld);
          return { taken: new Uint8Array(columns.count).fill(Taken.taken), newestVersion: 0 };
        };
      });
    },
  },
  {
    name: 'a bit of what is read is wrong, now and then',
    found: ['bytes'],
    plant: () => {
      let count = 0;
      return replace(StoreNamespace.prototype, 'get', (get) => {
        return async function (this: StoreNamespace, ...of: unknown[]) {
          const page = await (get as (...of: unknown[]) => Promise<unknown>).apply(this, of);
          if (page instanceof Uint8Array && ++count % 20 === 0) page[page.length - 1]! ^= 1;
          return page;
        } as StoreNamespace['get'];
      });
    },
  },
  {
    name: 'two pages of a batch are swapped',
    found: ['bytes'],
    plant: () =>
      replace(StoreNamespace.prototype, 'batchGet', (batchGet) => {
        return function (this: StoreNamespace, keys, ptrs, sizes) {
          const swapped = Array.from(ptrs);
          if (sizes[0] === sizes[1]) [swapped[0], swapped[1]] = [ptrs[1] as bigint, ptrs[0] as bigint];
          return batchGet.call(this, keys, swapped, sizes);
        };
      }),
  },
  {
    name: 'a call throws instead of a miss',
    found: ['threw'],
    plant: () =>
      replace(StoreNamespace.prototype, 'batchExists', () => async () => {
        throw new TypeError('planted');
      }),
  },
  {
    name: 'answers have one element too few',
    found: ['answer', 'bytes'],
    plant: () =>
      replace(StoreNamespace.prototype, 'delete', (remove) => {
        return async function (this: StoreNamespace, keys) {
          return (await remove.call(this, keys)).slice(1);
        };
      }),
    scenario: { workload: mixed({ deleteOneIn: 8 }) },
  },
  {
    name: 'the deadlines of calls to other nodes are forgotten',
    found: ['late', 'lost'],
    kinds: ['partition', 'isolate', 'freeze'],
    environment: ({ clock }) => ({
      clock: {
        nowMs: () => clock.nowMs(),
        wallMs: () => clock.wallMs(),
        yield: () => clock.yield(),
        soon: (fn) => clock.soon(fn),
        after: (delayMs, fn, options) => (DEADLINES_MS.has(delayMs) ? nothing : clock.after(delayMs, fn, options)),
      },
    }),
  },
  {
    name: 'closing a store leaves a timer',
    found: ['leak'],
    onStore: (_, env) => void env.clock.after(1e6, nothing),
  },
  {
    name: 'closing a store leaves a server',
    found: ['leak'],
    onStore: (_, env) => void env.network.createServer({}, nothing).listen({ host: '0.0.0.0', port: 9000 }),
  },
  {
    name: 'closing a store leaves memory',
    found: ['leak'],
    onStore: (_, env) => void env.host.allocate(4096),
  },
  {
    name: 'page events do not tell of pages that have gone',
    found: ['events'],
    scenario: { shape: { poolPages: 8 } },
    plant: () =>
      replace(PageEvents.prototype, 'note', (note) => {
        return function (this: PageEvents, keys) {
          if (keys.length > 1) note.call(this, keys);
        };
      }),
  },
  {
    name: 'copies that are pinned make room for others',
    found: ['pin'],
    scenario: {
      shape: { poolPages: 24, config: { pin_max_share: 0.5, promote_hot_reads: true } },
      workload: mixed({ pinEveryMs: 100, deleteOneIn: 0, clearOneIn: 0, pauseMaxMs: 40 }),
    },
    plant: () => replace(PagePins.prototype, 'has', () => () => false),
  },
  {
    name: 'the lease of a pinned page is forgotten',
    found: ['pin', 'invariant'],
    scenario: {
      shape: { poolPages: 24, config: { pin_max_share: 0.5 } },
      workload: mixed({ pinEveryMs: 100, deleteOneIn: 0, clearOneIn: 0 }),
    },
    plant: () =>
      replace(PublishedPool.prototype, 'lease', (lease) => {
        return function (this: PublishedPool, keys, onEndedEarly) {
          const leases = lease.call(this, keys, onEndedEarly);
          if (onEndedEarly !== undefined) this.unlease(leases.filter((each) => each !== null));
          return leases.map((each) => each && { ...each, key: each.key, page: each.page, isLive: true });
        };
      }),
  },
  {
    name: 'a flush that was lost is taken for flushed',
    found: ['order', 'bytes', 'logged', 'disagree'],
    kinds: ['power', 'rack'],
    scenario: { ...WITH_DISK, shape: { diskPages: 200, config: { directory_replicas: 1 } } },
    environment: ({ files }) => ({
      files: filesWith(files, async (path, options) => {
        const file = await files.open(path, options);
        file.datasync = async () => {};
        return file;
      }),
    }),
  },
  {
    name: 'the last write of the index waits for the next one',
    found: ['order', 'bytes', 'logged', 'disagree', 'lost', 'threw'],
    kinds: ['kill'],
    scenario: { ...WITH_DISK, workload: { ...MIXED, pauseMaxMs: 200, clearOneIn: 8 } },
    environment: ({ files }) => ({
      files: filesWith(files, async (path, options) => {
        const file = await files.open(path, options);
        if (!path.endsWith('index') || options?.write !== true) return file;
        const write = file.write.bind(file);
        let held: (() => Promise<unknown>) | undefined;
        file.write = async (views, position) => {
          const copies = views.map((view) => Uint8Array.from(view));
          const before = held;
          held = () => write(copies, position);
          await before?.();
          return copies.reduce((sum, { length }) => sum + length, 0);
        };
        return file;
      }),
    }),
  },
  {
    name: 'checksums are all the same',
    found: ['bytes', 'order'],
    kinds: ['bitrot', 'power', 'kill'],
    scenario: { shape: { diskPages: 300, poolPages: 8, pageBytes: 128 } },
    plant: () => {
      const real = zlib.crc32;
      const set = (crc32: typeof real): void => {
        Object.assign(zlib, { crc32 });
        syncBuiltinESMExports();
      };
      set(() => 7);
      return () => set(real);
    },
  },
  {
    name: 'an owner says taken where it knows of something newer',
    found: ['order', 'disagree', 'lost'],
    kinds: ['partition', 'isolate', 'clockjump'],
    plant: () =>
      replace(DirectoryShard.prototype, 'put', (put) => {
        return function (this: DirectoryShard, keys, locations, options) {
          return put.call(this, keys, locations, options).map((taken) => {
            return taken === Taken.outdated ? Taken.taken : taken;
          });
        };
      }),
  },
  {
    name: 'pages are removed after their expiry, and found until then',
    found: ['order'],
    plant: () => replace(ExpiryHeap.prototype, 'expiresOf', () => () => 0),
  },
  {
    name: 'who has left a partition behind drops everybody else',
    found: ['lost', 'invariant', 'order'],
    kinds: ['partition', 'kill'],
    plant: () =>
      replace(DirectoryShard.prototype, 'dropNodes', (dropNodes) => {
        return function (this: DirectoryShard, keep) {
          return dropNodes.call(this, (node) => !keep(node));
        };
      }),
  },
  {
    name: 'a copy names another node than the one that has set it',
    found: ['order'],
    scenario: CLEARED_COPIES,
    plant: () =>
      replace(PublishedPool.prototype, 'fillPages', (fillPages) => {
        return function (this: PublishedPool, keys, lengths, fill, pages) {
          const origins = pages?.origins?.map((origin) => ({ ...origin, setBy: Number(origin.setBy !== 0) }));
          return fillPages.call(this, keys, lengths, fill, { ...pages, origins });
        };
      }),
  },
  {
    name: 'a clear is carried out, and not remembered',
    found: ['order'],
    scenario: { ...CLEARED_COPIES, network: { latencyMs: 20, tailProbability: 0.3 } },
    plant: () => replace(KnownClears.prototype, 'isVoid', () => () => false),
  },
  {
    name: 'a count of the directory is wrong',
    found: ['invariant'],
    plant: () => replace(LocationLists.prototype, 'uncount', () => nothing),
  },
  {
    name: 'the present goes on from a version that was ahead of it',
    found: ['clock'],
    plant: () =>
      replace(HybridClock.prototype, 'next', (next) => {
        return function (this: HybridClock) {
          const version = next.call(this);
          this.hear(version + 512);
          return version;
        };
      }),
  },
  {
    name: 'a rejection that nobody handles',
    found: ['threw'],
    onStore: (_, env) => void env.clock.after(500, () => void Promise.reject(new Error('planted'))),
  },
  {
    name: 'an error is logged',
    found: ['logged'],
    onStore: (_, env) => env.log.log('error', 'planted'),
  },
  {
    name: 'a node does not start',
    found: ['start'],
    environment: ({ host }) => ({ host: { ...host, memoryBytes: 10 } }),
  },
];
