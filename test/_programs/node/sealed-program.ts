/**
 * Starts, uses and closes a store whose environment is made up, in a process where every way out of the program but
 * that is blocked. Prints what it has done, and every way out that was tried, as JSON.
 */
import childProcess from 'node:child_process';
import crypto from 'node:crypto';
import dgram from 'node:dgram';
import dns from 'node:dns';
import { EventEmitter } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import perfHooks from 'node:perf_hooks';
import tls from 'node:tls';
import workerThreads from 'node:worker_threads';
import type { Environment } from '../../../src/base/environment/environment.js';
import type { Host } from '../../../src/base/environment/host.js';
import { noMetrics } from '../../../src/base/environment/metrics-sink.js';
import { seededRandom } from '../../../src/base/environment/random.js';
import { defaultCore } from '../../../src/core/index.js';
import { loadNative } from '../../../src/native/addon/loader.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { inlineThreads } from '../../../src/sim/world/inline-threads.js';
import { ManualClock } from '../../_support/clock.js';

const POOL_BYTES = 2 ** 20;
const POOL_ADDRESS = 2 ** 52;
const STEP_MS = 50;
const MAX_STEPS = 100_000;

const { setImmediate: realSetImmediate, process: realProcess } = globalThis;
const nextTick = realProcess.nextTick.bind(realProcess);
const violations: string[] = [];

/** Blocks all ways out; the result opens them again. */
function seal(): () => void {
  const undo: (() => void)[] = [];
  const block = (owner: object, name: string, shown = name): void => {
    const before = Object.getOwnPropertyDescriptor(owner, name);
    if (before?.configurable === false) return;
    const refuse = (): never => {
      violations.push(`${shown}: ${new Error().stack?.split('\n').slice(3, 6).join(' ')}`);
      throw new Error(`${shown} is not of the environment`);
    };
    // Code that only looks at a class, as instanceof does, is allowed.
    const original = (owner as Record<string, unknown>)[name] as () => unknown;
    const value = new Proxy(original, { apply: refuse, construct: refuse });
    Object.defineProperty(owner, name, { value, configurable: true, writable: true });
    undo.push(() => {
      if (before === undefined) delete (owner as Record<string, unknown>)[name];
      else Object.defineProperty(owner, name, before);
    });
  };
  for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask', 'Date', 'fetch']) {
    block(globalThis, name);
  }
  block(Date, 'now', 'Date.now');
  block(Math, 'random', 'Math.random');
  block(performance, 'now', 'performance.now');
  block(performance, 'eventLoopUtilization', 'performance.eventLoopUtilization');
  for (const name of ['nextTick', 'hrtime', 'memoryUsage', 'cpuUsage', 'uptime', 'umask', 'on', 'once', 'dlopen']) {
    block(process, name, `process.${name}`);
  }
  const random = ['randomBytes', 'randomInt', 'randomUUID', 'randomFill', 'randomFillSync', 'getRandomValues'];
  for (const name of random) block(crypto, name, `crypto.${name}`);
  const modules = { childProcess, dgram, dns, fs, http, net, os, perfHooks, tls, workerThreads };
  for (const [module, functions] of Object.entries(modules)) {
    for (const [name, value] of Object.entries(functions)) {
      if (typeof value === 'function') block(functions, name, `${module}.${name}`);
    }
  }
  for (const [name, value] of Object.entries(fs.promises)) {
    if (typeof value === 'function') block(fs.promises, name, `fs.promises.${name}`);
  }
  syncBuiltinESMExports();
  return () => {
    for (const open of undo) open();
    syncBuiltinESMExports();
  };
}

/** Throws for a way out that must not be used at all. */
function untouchable(name: string): never {
  return new Proxy(
    {},
    {
      get(_, member) {
        violations.push(`${name}.${String(member)} is used`);
        throw new Error(`there is no ${name}`);
      },
    },
  ) as never;
}

class SealedClock extends ManualClock {
  override yield(): Promise<void> {
    return new Promise((resolve) => this.after(0, resolve));
  }

  override soon(fn: () => void): void {
    nextTick(fn);
  }
}

/** A network on which servers listen and no peer is ever reached. */
class DeafNetwork {
  listening = 0;
  readonly #clock: ManualClock;

  constructor(clock: ManualClock) {
    this.#clock = clock;
  }

  connect(): unknown {
    const connection = Object.assign(new EventEmitter(), {
      destroyed: false,
      writableLength: 0,
      destroy: (error?: Error) => {
        if (connection.destroyed) return;
        connection.destroyed = true;
        this.#clock.after(0, () => {
          if (error !== undefined) connection.emit('error', error);
          connection.emit('close');
        });
      },
      ref: () => connection,
      unref: () => connection,
    });
    const refusal = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
    this.#clock.after(0, () => connection.destroy(refusal));
    return connection;
  }

  createServer(): unknown {
    const server = Object.assign(new EventEmitter(), {
      address: () => ({ address: '10.0.0.1', port: 5000 }),
      listen: () => {
        this.listening++;
        this.#clock.after(0, () => server.emit('listening'));
        return server;
      },
      close: (done: () => void) => {
        this.listening--;
        this.#clock.after(0, done);
        return server;
      },
      unref: () => server,
    });
    return server;
  }
}

let takenBytes = 0;
let observations = 0;

const host: Host = {
  name: 'sealed',
  processId: 7,
  memoryBytes: 2 * POOL_BYTES,
  parallelism: 1,
  hasDevices: false,
  allocate(bytes) {
    takenBytes += bytes;
    const segments = [new Uint8Array(new SharedArrayBuffer(bytes))];
    return { segments, start: POOL_ADDRESS, release: () => (takenBytes -= bytes) };
  },
  observeLoop() {
    observations++;
    return { count: 0, delayS: () => 0, utilization: () => 0, beginAnew() {}, end() {} };
  },
  freeMemoryBytes: () => POOL_BYTES,
  residentBytes: () => POOL_BYTES,
  resolve: async (name) => (name === 'sealed' ? ['10.0.0.1'] : []),
  addresses: () => [{ address: '10.0.0.1', family: 'IPv4', isInternal: false, isLinkLocal: false }],
  addressTowards: async () => '10.0.0.1',
};

const clock = new SealedClock();
const network = new DeafNetwork(clock);
const logged: string[] = [];
const environment = {
  clock,
  random: seededRandom(1),
  network,
  files: untouchable('files'),
  threads: inlineThreads(clock),
  host,
  log: { log: (_level: string, message: string) => logged.push(message) },
  metrics: noMetrics,
  secrets: undefined,
  tls: undefined,
} as unknown as Environment;

async function useStore(): Promise<Record<string, unknown>> {
  const extraConfig = {
    discovery_addr: 'sealed:5000',
    allow_unauthenticated: true,
    metrics_enabled: false,
    global_segment_size: POOL_BYTES,
  };
  const ranks = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  const store = await MeshCacheStore.create({ ...ranks, extraConfig }, environment);
  const observationsAtStart = observations;
  const page = new Uint8Array(5000).fill(7);
  const isSet = await store.set('key', page);
  const read = await store.get('key');
  const { node_id: nodeId, rss_bytes: residentBytes } = (await store.runtime.report()) as unknown as Record<
    string,
    unknown
  >;
  const done = {
    isSet,
    isRead: read?.every((byte) => byte === 7),
    found: await store.batchExists(['key', 'other']),
    deleted: await store.delete(['key']),
    entries: store.stats().poolEntries,
    endpoint: store.runtime.localRdmaEndpoint,
    nodeId,
    residentBytes,
    takenBytes,
    observationsAtStart,
    observations,
  };
  await store.close();
  return { ...done, takenBytesAfter: takenBytes, timersAfter: clock.pendingCount, listeningAfter: network.listening };
}

/** Turns the clock until `work` has ended. */
async function turning<T>(work: Promise<T>): Promise<T> {
  let hasEnded = false;
  const ended = work.finally(() => {
    hasEnded = true;
  });
  ended.catch(() => {});
  for (let step = 0; !hasEnded && step < MAX_STEPS; step++) {
    await new Promise((resolve) => realSetImmediate(resolve));
    clock.advance(STEP_MS);
  }
  if (!hasEnded) throw new Error(`not done within ${MAX_STEPS} steps`);
  return ended;
}

// The program loads these parts of itself once in a process.
defaultCore();
loadNative();
const unseal = seal();
const result = await turning(useStore()).catch((error: Error) => ({ error: String(error.stack) }));
unseal();
console.log(JSON.stringify({ ...result, violations, logged }));
