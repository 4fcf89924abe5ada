// One node of the fault suite: a store under a workload that checks itself. Told what to do by its IPC channel, ends
// with it.

import { readdirSync, readFileSync } from 'node:fs';
import type { Clock } from '../../../src/base/environment/clock.js';
import { KEY_PREFIX_BYTES } from '../../../src/base/limits.js';
import { ClusterQuery } from '../../../src/cli/status/cluster-query.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { stderrLogger } from '../../../src/system/system-log.js';
import { CallWatch, starvedMs } from '../../faults/call-watch.js';
import { OrderLog } from '../../faults/order.js';
import { PageHistory } from '../../faults/pages.js';
import { plant } from '../../faults/planted.js';
import type { Ask, FromNode, NodeSetup, Progress, Sample, Survivor, ToNode, Violation } from '../../faults/protocol.js';
import { Workload } from '../../faults/workload.js';

/** A clock whose wall time can be wrong, and whose timers are counted. */
class ShiftedClock implements Clock {
  offsetMs = 0;
  timers = 0;

  nowMs(): number {
    return systemClock.nowMs();
  }

  wallMs(): number {
    return systemClock.wallMs() + this.offsetMs;
  }

  after(delayMs: number, fn: () => void, options?: { keepAlive?: boolean }): () => void {
    let isPending = true;
    const settle = () => {
      if (isPending) this.timers--;
      isPending = false;
    };
    this.timers++;
    const cancel = systemClock.after(
      delayMs,
      () => {
        settle();
        fn();
      },
      options,
    );
    return () => {
      settle();
      cancel();
    };
  }

  yield(): Promise<void> {
    return systemClock.yield();
  }

  soon(fn: () => void): void {
    systemClock.soon(fn);
  }
}

function send(message: FromNode): void {
  if (process.connected) process.send?.(message);
}

class FaultNode {
  readonly #setup: NodeSetup;
  readonly #clock = new ShiftedClock();
  readonly #watch: CallWatch;
  readonly #history: PageHistory;
  readonly #order: OrderLog;
  #store: MeshCacheStore | undefined;
  #workload: Workload | undefined;

  constructor(setup: NodeSetup) {
    this.#setup = setup;
    this.#clock.offsetMs = setup.clockOffsetMs;
    this.#watch = new CallWatch({
      late: (detail) => this.#violation('hang', detail),
      stall: (ms) => send({ kind: 'stall', ms }),
    });
    this.#history = new PageHistory(setup.folder, { seed: setup.seed, writer: setup.node });
    this.#order = new OrderLog(setup.folder, setup.node);
  }

  async start(): Promise<void> {
    const { node, nodes, seed, canaries, extraConfig } = this.#setup;
    plant(canaries);
    const store = await MeshCacheStore.create(
      { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'faults', extraConfig },
      { clock: this.#clock, log: stderrLogger('info') },
    );
    this.#store = store;
    this.#workload = new Workload({
      store,
      history: this.#history,
      order: this.#order,
      watch: this.#watch,
      node,
      nodes,
      // A different seed after each start.
      seed: (Math.imul(seed + node, 0x9e3779b1) ^ process.pid) >>> 0,
      canaries,
      onViolation: (kind, detail) => this.#violation(kind, detail),
    });
  }

  async answer(ask: Ask): Promise<unknown> {
    const { store, workload } = this.#running();
    switch (ask.what) {
      case 'work':
        if (this.#setup.canaries.includes('crash')) setTimeout(() => process.exit(3), 1_000);
        return workload.start();
      case 'rest':
        return workload.rest();
      case 'progress':
        this.#verify();
        return this.#progress();
      case 'members':
        return [...store.runtime.members().keys()].sort();
      case 'survivors':
        this.#verify();
        return this.#survivors();
      case 'find':
        return workload.find(ask.keys).finally(() => this.#order.flush());
      case 'sample':
        this.#verify();
        return this.#sample();
      case 'jump':
        this.#clock.offsetMs += ask.ms;
        return;
      case 'drain':
        return this.#drain(ask.timeoutMs);
      case 'close':
        return this.#close();
    }
  }

  /** The state of this node must be consistent at any time. */
  #verify(): void {
    try {
      this.#store?.verify();
    } catch (error) {
      this.#violation('invariant', String((error as Error).stack));
    }
  }

  /** Drains the node as an operator does, by the control endpoint. */
  async #drain(timeoutMs: number): Promise<void> {
    const { store } = this.#running();
    const { extraConfig } = this.#setup;
    const secret = extraConfig.cluster_secret as string | undefined;
    const query = new ClusterQuery(secret === undefined ? {} : { clusterSecret: [secret] });
    try {
      const endpoint = { host: String(extraConfig.local_hostname), port: Number(extraConfig.control_port) };
      await query.drain(endpoint, { timeoutMs });
      await store.drained;
    } finally {
      await query.close();
    }
  }

  /** Milliseconds that closing the store took. */
  async #close(): Promise<number> {
    const { store, workload } = this.#running();
    this.#verify();
    const startMs = performance.now();
    // Calls in progress end with the store.
    const rest = workload.rest();
    await store.close();
    const tookMs = performance.now() - startMs;
    await rest;
    workload.free();
    this.#watch.stop();
    this.#history.close();
    this.#order.close();
    if (this.#setup.canaries.includes('leak')) setInterval(() => {}, 1_000);
    return tookMs;
  }

  #running(): { store: MeshCacheStore; workload: Workload } {
    if (this.#store === undefined || this.#workload === undefined) throw new Error('the node does not run');
    return { store: this.#store, workload: this.#workload };
  }

  #survivors(): Survivor[] {
    const { store } = this.#running();
    return Array.from(store.holdings(), ([key, { tier }]) => ({ key: key.slice(KEY_PREFIX_BYTES), tier }));
  }

  #progress(): Progress {
    const { store, workload } = this.#running();
    const { hits, misses, checksumFailures } = store.stats();
    return {
      calls: { ...this.#watch.calls },
      longestMs: { ...this.#watch.longestMs },
      ...workload.counts(),
      hits: hits.local + hits.remote + hits.disk,
      misses,
      remoteHits: hits.remote,
      diskHits: hits.disk,
      checksumFailures,
      starvedMs: Math.round(starvedMs()),
    };
  }

  async #sample(): Promise<Sample> {
    const { store } = this.#running();
    const { rss, heapUsed } = process.memoryUsage();
    const report = await store.runtime.report();
    return {
      rssBytes: rss,
      heapBytes: heapUsed,
      descriptors: readdirSync('/proc/self/fd').length,
      timers: this.#clock.timers,
      connections: readFileSync('/proc/self/net/tcp', 'utf8').trim().split('\n').length - 1,
      directoryKeys: report.directory.keys,
    };
  }

  #violation(kind: Violation['kind'], detail: string): void {
    // A closed store ends calls by an error; that is its contract.
    if (kind === 'threw' && /ClosedError/.test(detail)) return;
    send({ kind: 'violation', violation: { kind, node: this.#setup.node, detail } });
  }
}

process.once('disconnect', () => process.exit());
process.once('message', async ({ setup }: Extract<ToNode, { setup: NodeSetup }>) => {
  const node = new FaultNode(setup);
  process.on('message', async (message: ToNode) => {
    if (!('ask' in message)) return;
    const { id, ask } = message;
    try {
      send({ kind: 'reply', id, value: await node.answer(ask) });
    } catch (error) {
      send({ kind: 'reply', id, error: String((error as Error).stack ?? error) });
    }
    // Only the channel keeps the process alive now.
    if (ask.what === 'close') process.channel?.unref();
  });
  try {
    await node.start();
    send({ kind: 'ready' });
  } catch (error) {
    const { message, code } = error as Error & { code?: string };
    send({ kind: 'failed', message, code: code ?? '' });
  }
});
