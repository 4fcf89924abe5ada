import type { Environment } from '../../base/environment/environment.js';
import type { HostMemory } from '../../base/environment/host.js';
import type { Labels, MetricsSink } from '../../base/environment/metrics-sink.js';
import type { RandomSource } from '../../base/environment/random.js';
import { regionOf } from '../../memory/address-space.js';
import { SimFiles } from './files/sim-files.js';
import { inlineThreads } from './inline-threads.js';
import type { SimEvent } from './kernel/event-heap.js';
import type { Scheduler } from './kernel/scheduler.js';
import { SimClock } from './kernel/sim-clock.js';
import type { HostNetwork, NetworkProcess } from './network/host-network.js';
import type { SimConnection } from './network/sim-connection.js';
import { SimNetwork, type SimServer } from './network/sim-server.js';
import type { SimHost } from './sim-host.js';
import type { World } from './world.js';

/** Resources of a process at a moment. Once a fault is over, they should be what they were before. */
export interface ProcessCounts {
  readonly timers: number;
  readonly connections: number;
  readonly servers: number;
  readonly openFiles: number;
  readonly memoryBytes: number;
}

/**
 * One run of a program on a simulated host, from its start to its death. The program is any code that uses its {@link
 * environment}. Once the process is dead, nothing of it runs any more: no timer, no event of a connection, and no
 * promise that waits for one of them.
 */
export class SimProcess implements NetworkProcess {
  /** Number in the event log. */
  readonly id: number;
  readonly name: string;
  readonly host: SimHost;
  readonly clock: SimClock;
  /** The clock of the program around the node; its timers do not count as the node's. */
  readonly programClock: SimClock;
  readonly random: RandomSource;
  readonly files: SimFiles;
  /** Metrics of its program. */
  readonly metrics = new CountedMetrics();
  /**
   * The environment of its program, in place of the real machine. A store that must keep its own metrics gets it with
   * `metrics: undefined`.
   */
  readonly environment: Environment;
  readonly connections = new Set<SimConnection>();
  readonly servers = new Set<SimServer>();
  readonly #world: World;
  readonly #scheduler: Scheduler;
  readonly #regions = new Map<number, number>();
  #isAlive = true;
  #isStopped = false;
  /** Events that wait while the process is held. */
  #held: SimEvent[] = [];
  #busyUntilMs = 0;

  /** @internal `SimHost.start` creates processes. */
  constructor(
    world: World,
    host: SimHost,
    identity: { readonly id: number; readonly name: string; readonly random: RandomSource },
  ) {
    this.#world = world;
    this.#scheduler = world.scheduler;
    this.host = host;
    this.id = identity.id;
    this.name = identity.name;
    this.random = identity.random;
    this.clock = new SimClock(world.scheduler, host.time, this, world.options.turnMs);
    this.programClock = new SimClock(world.scheduler, host.time, this, world.options.turnMs);
    this.files = new SimFiles(this, host.disk);
    this.environment = {
      clock: this.clock,
      random: this.random,
      network: new SimNetwork(this, world.fabric),
      files: this.files,
      threads: inlineThreads(this.clock),
      host: host.seenBy(this),
      names: world.names.seenBy(this),
      http: {
        post: world.etcd.seenBy(this),
        connections: (server) => world.objects.connections(this, server),
      },
      log: { log: (level, message, fields) => world.journal.add(this, level, message, fields) },
      metrics: this.metrics,
    };
  }

  get network(): HostNetwork {
    return this.host.network;
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** Whether it is stopped, or its host is frozen. */
  get isHeld(): boolean {
    return this.#isStopped || this.host.isFrozen;
  }

  get counts(): ProcessCounts {
    return {
      timers: this.clock.timersCount,
      connections: this.connections.size,
      servers: this.servers.size,
      openFiles: this.files.openCount,
      memoryBytes: this.memoryBytes,
    };
  }

  /** Bytes that it has allocated for pages. */
  get memoryBytes(): number {
    let bytes = 0;
    for (const length of this.#regions.values()) bytes += length;
    return bytes;
  }

  /** Runs `fn` as a part of its program, and resolves with the result. Never resolves if the process dies first. */
  run<T>(fn: () => T | Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.schedule('run', () => {
        // An exception goes to the caller, which waits for the outcome.
        Promise.resolve().then(fn).then(resolve, reject);
      });
    });
  }

  /**
   * Kills the process, as SIGKILL does: the kernel closes its files, and peers see their connections end. Idempotent.
   */
  kill(): void {
    if (!this.#isAlive) return;
    this.#die();
    for (const server of this.servers) server.closedByKernel();
    for (const connection of this.connections) connection.closedByKernel();
    this.#forget();
  }

  /** Stops the process, as SIGSTOP does; the kernel keeps working for it, as far as its buffers reach. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Continues the process, as SIGCONT does. */
  continue(): void {
    this.#isStopped = false;
    this.replay();
  }

  /** @internal Ends the process with its host; no peer is informed. */
  vanish(): void {
    if (!this.#isAlive) return;
    this.#die();
    for (const server of this.servers) server.closedByKernel();
    for (const connection of this.connections) connection.vanished();
    this.#forget();
  }

  /** @internal Runs held events, unless the process is still held. */
  replay(): void {
    if (this.isHeld) return;
    const held = this.#held;
    this.#held = [];
    for (const event of held) this.#scheduler.reschedule(event, this.#scheduler.nowMs);
  }

  mayRun(event: SimEvent): boolean {
    if (!this.#isAlive) return false;
    if (this.isHeld) {
      this.#held.push(event);
      return false;
    }
    if (this.host.eventCostMs > 0 && !this.#hasTurn()) {
      this.#scheduler.reschedule(event, this.#busyUntilMs);
      return false;
    }
    return true;
  }

  /** @internal Schedules an event; does nothing once the process is dead. */
  schedule(kind: string, run: () => void, delayMs = 0): void {
    if (!this.#isAlive) return;
    this.#scheduler.schedule(this.#scheduler.nowMs + delayMs, { kind, owner: this, run });
  }

  /**
   * @internal Runs `fn` in this process: at once as a part of the kernel's current event, or as soon as the process can
   * run.
   */
  enter(kind: string, fn: () => void): void {
    const mayEnter =
      this.#isAlive && !this.isHeld && this.host.eventCostMs === 0 && this.#scheduler.current === undefined;
    if (mayEnter) this.#scheduler.runAs(this, fn);
    else this.schedule(kind, fn);
  }

  /** @internal Allocates memory for pages, at addresses that are the same in every run. */
  allocate(length: number): HostMemory {
    this.host.takeMemory(length);
    const start = this.#world.takeAddresses(length);
    this.#regions.set(start, length);
    const release = (): void => {
      if (this.#regions.delete(start)) this.host.giveMemory(length);
    };
    return { segments: [new Uint8Array(new SharedArrayBuffer(length))], start, release };
  }

  /** @internal The memory behind a path of the host, see `Host.keep`. If it was shorter before, the rest is zeros. */
  keep(path: string, length: number): HostMemory {
    const { kept } = this.host;
    const memory = this.allocate(length);
    const before = kept.get(path);
    if (before?.length === length) return { ...memory, segments: [before] };
    const [segment] = memory.segments as [Uint8Array];
    if (before !== undefined) segment.set(before.subarray(0, length));
    kept.set(path, segment);
    return memory;
  }

  #hasTurn(): boolean {
    const { nowMs } = this.#scheduler;
    if (nowMs < this.#busyUntilMs) return false;
    this.#busyUntilMs = nowMs + this.host.eventCostMs;
    return true;
  }

  #die(): void {
    this.#isAlive = false;
    this.#held = [];
    this.files.vanish();
  }

  #forget(): void {
    this.connections.clear();
    this.servers.clear();
    this.host.processes.delete(this);
    // Without this, its regions would keep their memory and their addresses.
    for (const [start, length] of [...this.#regions]) {
      regionOf(start, length)?.free();
      if (this.#regions.delete(start)) this.host.giveMemory(length);
    }
  }
}

/** Keeps the metrics of one process, so that they can be read. */
class CountedMetrics implements MetricsSink {
  readonly #counts = new Map<string, number>();
  readonly #providers = new Map<string, () => number>();

  count(name: string, amount = 1, labels?: Labels): void {
    const key = labels === undefined ? name : keyOf(name, labels);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + amount);
  }

  setGaugeProvider(name: string, provider: () => number, labels?: Labels): void {
    this.#providers.set(keyOf(name, labels), provider);
  }

  setCounterProvider(name: string, provider: () => number, labels?: Labels): void {
    this.#providers.set(keyOf(name, labels), provider);
  }

  /** The count or gauge with these labels; without labels, the sum over all with that name. */
  value(name: string, labels?: Labels): number {
    if (labels !== undefined) return this.#value(keyOf(name, labels));
    let sum = 0;
    const keys = new Set([...this.#counts.keys(), ...this.#providers.keys()]);
    for (const key of keys) if (key === name || key.startsWith(`${name}{`)) sum += this.#value(key);
    return sum;
  }

  #value(key: string): number {
    return (this.#counts.get(key) ?? 0) + (this.#providers.get(key)?.() ?? 0);
  }
}

/** A key as Prometheus writes it. Labels keep their order, which is the same everywhere in the code. */
function keyOf(name: string, labels: Labels = {}): string {
  let pairs = '';
  for (const label in labels) pairs += `${pairs === '' ? '' : ','}${label}="${labels[label]}"`;
  return pairs === '' ? name : `${name}{${pairs}}`;
}
