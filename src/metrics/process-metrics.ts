import { readdir } from 'node:fs/promises';
import { performance } from 'node:perf_hooks';
import { Counter, Gauge, type Registry } from 'prom-client';
import type { Clock } from '../base/environment/clock.js';
import type { Host, LoopObservation } from '../base/environment/host.js';
import { EVENT_LOOP_TURN_MS } from '../base/limits.js';

/** Seconds by which work on the event loop was late. */
interface EventLoopDelay {
  readonly p50_s: number;
  readonly p99_s: number;
  readonly max_s: number;
}

/** Folder with the open files of this process on Linux; other systems have no such folder. */
const OPEN_FILES = '/proc/self/fd';

/**
 * Metrics of the process, with the names that other Node programs use. (prom-client has such a collection, too, but it
 * starts observers that cannot be stopped.)
 */
export class ProcessMetrics {
  readonly #registry: Registry;
  readonly #clock: Clock;
  readonly #host: Host;
  /**
   * Observation of the event loop, created when its figures are first requested: with thousands of nodes in one
   * process, observing for each of them would take all of its time.
   */
  #window: EventLoopWindow | undefined;
  #isClosed = false;

  /** Adds the metrics to `registry`. */
  constructor(registry: Registry, clock: Clock, host: Host) {
    this.#registry = registry;
    this.#clock = clock;
    this.#host = host;
    this.#addTimes();
    this.#addMemory();
    this.#addEventLoop();
    this.#addVersion();
  }

  /** Begins to observe the event loop. Idempotent; has no effect after {@link close}. */
  observe(): void {
    if (!this.#isClosed) this.#window ??= new EventLoopWindow(this.#clock, this.#host);
  }

  /** Delay of the event loop; all 0 before {@link observe}. */
  eventLoopDelay(): EventLoopDelay {
    return this.#window?.delay() ?? { p50_s: 0, p99_s: 0, max_s: 0 };
  }

  /** Stops the observers; their last values stay. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#window?.close();
  }

  #addTimes(): void {
    this.#counter('process_cpu_user_seconds_total', 'Processor time spent in user mode', () => cpuSeconds().user);
    this.#counter('process_cpu_system_seconds_total', 'Processor time spent in the kernel', () => cpuSeconds().system);
    this.#counter('process_cpu_seconds_total', 'Processor time spent, in user mode and in the kernel', () => {
      const { user, system } = cpuSeconds();
      return user + system;
    });
    const help = 'Start of the process, seconds since 1970';
    this.#gauge('process_start_time_seconds', help, () => performance.timeOrigin / 1000);
  }

  #addMemory(): void {
    this.#gauge('process_resident_memory_bytes', 'Memory of the process that is resident', () =>
      process.memoryUsage.rss(),
    );
    this.#gauge('nodejs_heap_size_total_bytes', 'Size of the JavaScript heap', () => process.memoryUsage().heapTotal);
    this.#gauge('nodejs_heap_size_used_bytes', 'JavaScript heap in use', () => process.memoryUsage().heapUsed);
    this.#gauge(
      'nodejs_external_memory_bytes',
      'Memory outside of the JavaScript heap that its objects hold',
      () => process.memoryUsage().external,
    );
    new Gauge({
      name: 'process_open_fds',
      help: 'Open files and sockets of the process',
      registers: [this.#registry],
      async collect() {
        const files = await readdir(OPEN_FILES).catch(() => null);
        if (files === null) this.remove();
        // One of the open files is the listing itself.
        else this.set(files.length - 1);
      },
    });
  }

  #addEventLoop(): void {
    const late = 'by which work on the event loop was late, over the last 10 to 20 s';
    this.#gauge('nodejs_eventloop_lag_p50_seconds', `Median time ${late}`, () => this.eventLoopDelay().p50_s);
    this.#gauge(
      'nodejs_eventloop_lag_p99_seconds',
      `99th percentile of the time ${late}`,
      () => this.eventLoopDelay().p99_s,
    );
    this.#gauge('nodejs_eventloop_lag_max_seconds', `Longest time ${late}`, () => this.eventLoopDelay().max_s);
    const help = 'Part of the last 10 to 20 s in which the event loop was at work, 0 to 1';
    this.#gauge('nodejs_eventloop_utilization_ratio', help, () => this.#window?.utilization() ?? 0);
  }

  #addVersion(): void {
    const { version } = process;
    const [major, minor, patch] = version.slice(1).split('.');
    const labels = { version, major: String(major), minor: String(minor), patch: String(patch) };
    const info = new Gauge({
      name: 'nodejs_version_info',
      help: 'Always 1; the version of Node is in the labels',
      labelNames: Object.keys(labels),
      registers: [this.#registry],
    });
    info.set(labels, 1);
  }

  #gauge(name: string, help: string, provider: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.set(provider());
      },
    });
  }

  #counter(name: string, help: string, provider: () => number): void {
    new Counter({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.reset();
        this.inc(provider());
      },
    });
  }
}

function cpuSeconds(): { readonly user: number; readonly system: number } {
  const { user, system } = process.cpuUsage();
  return { user: user / 1e6, system: system / 1e6 };
}

/**
 * Delay and utilization of the event loop in the recent past, independent of how often they are read. It keeps two
 * observations, one turn apart. The older one is reported; in every turn it is reset and becomes the younger one. The
 * observations do not keep the process alive.
 */
class EventLoopWindow {
  readonly #clock: Clock;
  #older: LoopObservation;
  #younger: LoopObservation;
  #cancelTurn: () => void = () => {};

  constructor(clock: Clock, host: Host) {
    this.#clock = clock;
    this.#older = host.observeLoop();
    this.#younger = host.observeLoop();
    this.#awaitTurn();
  }

  delay(): EventLoopDelay {
    const older = this.#older;
    if (older.count === 0) return { p50_s: 0, p99_s: 0, max_s: 0 };
    return { p50_s: older.delayS(50), p99_s: older.delayS(99), max_s: older.delayS(100) };
  }

  /** Fraction of the time in which the event loop was busy, 0 to 1. */
  utilization(): number {
    return this.#older.utilization();
  }

  /** Stops observing; the last values stay. Idempotent. */
  close(): void {
    this.#cancelTurn();
    for (const observation of [this.#older, this.#younger]) observation.end();
  }

  #awaitTurn(): void {
    this.#cancelTurn = this.#clock.after(EVENT_LOOP_TURN_MS, () => {
      const older = this.#older;
      older.beginAnew();
      this.#older = this.#younger;
      this.#younger = older;
      this.#awaitTurn();
    });
  }
}
