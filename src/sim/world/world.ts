import type { LogLevel } from '../../base/environment/log.js';
import { Journal, type JournalLine } from './journal.js';
import { EventLog } from './kernel/event-log.js';
import { type RunEnd, type RunLimits, Scheduler, SimulatedFailure } from './kernel/scheduler.js';
import { Fabric } from './network/fabric.js';
import { NETWORK_SHAPE, type NetworkShape } from './network/link.js';
import { SimEtcd } from './sim-etcd.js';
import { type HostOptions, SimHost } from './sim-host.js';
import { SimNames } from './sim-names.js';
import { type ObjectStoreShape, SimObjectStore } from './sim-object-store.js';

/** Options of a {@link World}. */
export interface WorldOptions {
  /** A whole number; the same seed gives the same run. */
  readonly seed: number;
  readonly network?: Partial<NetworkShape>;
  /** The object store of all hosts; default: there is none. */
  readonly objectStore?: ObjectStoreShape | undefined;
  /** Wall-clock time of all hosts at the start; default: 2030-01-01. */
  readonly wallMs?: number;
  /** Shortest time of a turn of a program's event loop, in milliseconds; default 0.01. */
  readonly turnMs?: number;
  /** Lowest level of log records to keep; default: `info`. */
  readonly logLevel?: LogLevel;
  /** Number of log records to keep; default: 1000. */
  readonly logMaxLines?: number;
  /** Called with each log record of a kept level. */
  readonly onLog?: (line: JournalLine) => void;
  /** Called with each event as a line of text, so that two runs can be compared line by line. */
  readonly onEvent?: (line: string) => void;
}

/** 2030-01-01T00:00:00Z */
const WALL_MS = 1_893_456_000_000;
/** Addresses of regions begin above all that exist elsewhere in this process. */
const FIRST_ADDRESS = 2 ** 52;
const ADDRESS_ALIGNMENT_BYTES = 2 ** 21;

/**
 * A simulated world: hosts with clocks, disks and processes, and the network between them, on virtual time and from one
 * seed. It runs production code that takes its surroundings from an `Environment`. A world provides one, and the code
 * cannot tell the difference.
 *
 *     const world = new World({ seed: 1 });
 *     const host = world.host({ name: 'node-1' });
 *     const process = host.start();
 *     const store = await world.complete(process.run(() => MeshCacheStore.create(config, process.environment)));
 *     await world.runFor(60_000);
 *     host.crash();
 *
 * Nothing happens between two runs. Only one world at a time can run in a Node process.
 */
export class World {
  readonly options: Required<Pick<WorldOptions, 'seed' | 'wallMs' | 'turnMs'>>;
  /** @internal */
  readonly scheduler: Scheduler;
  /** @internal */
  readonly eventLog: EventLog;
  /** The network between the hosts: its links, and their faults. */
  readonly fabric: Fabric;
  /** The name service of all hosts. */
  readonly names = new SimNames();
  /** The etcd of all hosts. */
  readonly etcd = new SimEtcd(this);
  /** The object store of all hosts. */
  readonly objects: SimObjectStore;
  /** Log records of all processes. */
  readonly journal: Journal;
  /** @internal Number of active faults of one kind with the same targets and peers. */
  readonly faultsUnderWay = new Map<string, number>();
  readonly #hosts = new Map<string, SimHost>();
  #nextAddress = FIRST_ADDRESS;
  #processes = 0;

  constructor(options: WorldOptions) {
    const { seed, wallMs = WALL_MS, turnMs = 0.01, logLevel = 'info', logMaxLines = 1000 } = options;
    this.options = { seed, wallMs, turnMs };
    this.objects = new SimObjectStore(options.objectStore);
    this.eventLog = new EventLog(options.onEvent);
    this.scheduler = new Scheduler(this.eventLog);
    const shape = { ...NETWORK_SHAPE, ...options.network };
    this.fabric = new Fabric({ scheduler: this.scheduler, log: this.eventLog, seed, shape });
    const journal = { maxLines: logMaxLines, minLevel: logLevel, onLine: options.onLog };
    this.journal = new Journal(() => this.scheduler.nowMs, journal);
  }

  /** Virtual milliseconds since the beginning. */
  get nowMs(): number {
    return this.scheduler.nowMs;
  }

  get eventsCount(): number {
    return this.eventLog.eventsCount;
  }

  /** Hash of all events; runs with the same hash did the same. */
  get hash(): string {
    return this.eventLog.hash;
  }

  get hosts(): ReadonlyMap<string, SimHost> {
    return this.#hosts;
  }

  /** Adds a host, which is up. It runs nothing until `boot()` or `start()`. */
  host(options: HostOptions): SimHost {
    const host = new SimHost(this, options, this.#hosts.size + 1);
    this.#hosts.set(host.name, host);
    return host;
  }

  /** Runs until one of the limits is reached or nothing is left to do. Rejects with {@link SimulatedFailure}. */
  run(limits: RunLimits = {}): Promise<RunEnd> {
    return this.scheduler.run(limits);
  }

  /** Runs for `ms` of virtual time. */
  runFor(ms: number): Promise<RunEnd> {
    return this.run({ untilMs: this.nowMs + ms });
  }

  /**
   * Runs until `work` is settled, and returns its outcome. Rejects if it is not settled within `maxMs` of virtual time
   * (default: ten minutes), or when nothing is left to do.
   */
  async complete<T>(work: Promise<T>, maxMs = 600_000): Promise<T> {
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    work.then(settle, settle);
    const end = await this.run({ until: () => isSettled, untilMs: this.nowMs + maxMs });
    if (!isSettled)
      throw new Error(end === 'idle' ? 'nothing is left to do, and it has not ended' : `not ended within ${maxMs} ms`);
    return work;
  }

  /** Runs `fn` at this virtual time, as an event of the world. */
  at(atMs: number, fn: () => void): void {
    this.scheduler.schedule(atMs, { kind: 'plan', owner: undefined, run: fn });
  }

  /** Ends the run after the current event. */
  stop(): void {
    this.scheduler.stop();
  }

  /** Ends every process, and frees all memory. Idempotent. */
  close(): void {
    for (const host of this.#hosts.values()) host.crash();
  }

  /** @internal */
  takeProcessId(): number {
    return ++this.#processes;
  }

  /** @internal */
  takeAddresses(length: number): number {
    const start = this.#nextAddress;
    this.#nextAddress += Math.ceil(length / ADDRESS_ALIGNMENT_BYTES + 1) * ADDRESS_ALIGNMENT_BYTES;
    return start;
  }
}

export { SimulatedFailure };
