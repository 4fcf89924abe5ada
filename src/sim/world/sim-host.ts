import type { Environment } from '../../base/environment/environment.js';
import type { Host, HostAddress, LoopObservation } from '../../base/environment/host.js';
import { type Endpoint, isEveryAddress } from '../../base/environment/network.js';
import { type DiskShape, SimDisk } from './files/sim-disk.js';
import { forkedRandom } from './kernel/seeds.js';
import { HostTime } from './kernel/sim-clock.js';
import type { HostNetwork } from './network/host-network.js';
import { SimProcess } from './sim-process.js';
import type { World } from './world.js';

/** Options of a host. */
export interface HostOptions {
  /** Name, which is also the host name. */
  readonly name: string;
  /** Address; default: 10.x.y.z, derived from the host's number. */
  readonly address?: string;
  /** Rack, whose hosts a fault can affect together. Default: one rack for all. */
  readonly rack?: string;
  /** Memory; default: 64 GiB. Only pools take real memory. */
  readonly memoryBytes?: number;
  readonly parallelism?: number;
  /** Bandwidth of the host in each direction, in bytes per second; default: that of the network. */
  readonly bytesPerS?: number;
  readonly disk?: Partial<DiskShape>;
  /** The program that runs at each start; usually it starts a node with the environment of the process. */
  readonly boot?: (process: SimProcess) => void | Promise<void>;
}

/** Options of a restart. */
interface RestartOptions {
  /** Whether its disks keep their data, see {@link SimDisk.crash}; default: true. False gives new, empty disks. */
  readonly keepsDisks?: boolean;
}

const MEMORY_BYTES = 64 * 2 ** 30;
const QUIET_LOOP: LoopObservation = { count: 0, delayS: () => 0, utilization: () => 0, beginAnew() {}, end() {} };

/** A simulated machine: its clocks, its disk, its place in the network, and its processes. */
export class SimHost {
  readonly name: string;
  readonly rack: string;
  readonly network: HostNetwork;
  readonly time: HostTime;
  readonly disk: SimDisk;
  readonly processes = new Set<SimProcess>();
  /** Memory by its path, which outlives processes but not the host. */
  readonly kept: Map<string, Uint8Array> = new Map();
  readonly #world: World;
  readonly #options: HostOptions;
  readonly #index: number;
  readonly #memoryBytes: number;
  #memoryLimitBytes: number | undefined;
  #eventCostMs = 0;
  #takenBytes = 0;
  #incarnation = 0;
  #isUp = true;
  #isFrozen = false;

  /** @internal `World.host` creates hosts. */
  constructor(world: World, options: HostOptions, index: number) {
    this.#world = world;
    this.#options = options;
    this.#index = index;
    this.name = options.name;
    this.rack = options.rack ?? 'rack-1';
    this.#memoryBytes = options.memoryBytes ?? MEMORY_BYTES;
    const address = options.address ?? `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
    const identity = { index, name: this.name, rack: this.rack, addresses: [address] };
    this.network = world.fabric.addHost(identity, options.bytesPerS);
    // Differs between hosts, so that readings of two hosts cannot be mixed up unnoticed.
    const monotonicMs = forkedRandom(world.options.seed, 'uptime', index).u32() % 1e7;
    this.time = new HostTime(world.scheduler, { monotonicMs, wallMs: world.options.wallMs });
    const random = forkedRandom(world.options.seed, 'disk', index);
    this.disk = new SimDisk(world.scheduler, random, options.disk ?? {});
  }

  /** Whether the host runs; false after a crash until a restart. */
  get isUp(): boolean {
    return this.#isUp;
  }

  get isFrozen(): boolean {
    return this.#isFrozen;
  }

  get address(): string {
    return this.network.address;
  }

  /** Starts a process; a host may have several. Throws while the host is down. */
  start(name = this.name): SimProcess {
    if (!this.#isUp) throw new Error(`${this.name} is down`);
    this.time.processStarts();
    const incarnation = ++this.#incarnation;
    const random = forkedRandom(this.#world.options.seed, 'process', this.#index, incarnation);
    const process = new SimProcess(this.#world, this, { id: this.#world.takeProcessId(), name, random });
    this.processes.add(process);
    return process;
  }

  /** The environment of a new process. */
  environment(): Environment {
    return this.start().environment;
  }

  /**
   * Starts a process and runs the host's `boot` in it; undefined if there is none. An exception or rejection of `boot`
   * fails the run.
   */
  boot(): SimProcess | undefined {
    const { boot } = this.#options;
    if (boot === undefined) return undefined;
    const process = this.start();
    process.schedule('boot', () => {
      const booted = boot(process);
      if (booted instanceof Promise) booted.catch((error: unknown) => this.#world.scheduler.fail(error));
    });
    return process;
  }

  /** Kills every process; the host keeps running. */
  killAll(): void {
    for (const process of [...this.processes]) process.kill();
  }

  /** Cuts the power: everything on the host is gone at once, and no peer is informed. */
  crash(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#isFrozen = false;
    this.#world.fabric.probeSilent(this.network);
    for (const process of [...this.processes]) process.vanish();
    this.network.servers.clear();
    this.network.isUp = false;
    this.disk.crash();
    this.kept.clear();
  }

  /** Starts the host with new processes, see `boot`. A host that is up crashes first. */
  restart({ keepsDisks = true }: RestartOptions = {}): SimProcess | undefined {
    this.crash();
    if (!keepsDisks) this.disk.replace();
    this.#isUp = true;
    this.network.isUp = true;
    return this.boot();
  }

  /** Freezes the host with its kernel; virtual time continues. With `isAsleep`, its monotonic clock stops, too. */
  freeze({ isAsleep = false }: { readonly isAsleep?: boolean } = {}): void {
    if (!this.#isUp || this.#isFrozen) return;
    this.#isFrozen = true;
    this.network.isUp = false;
    if (isAsleep) this.time.suspend();
    this.#world.fabric.probeSilent(this.network);
  }

  /** Lets the host's processes run again. */
  thaw(): void {
    if (!this.#isFrozen) return;
    this.#isFrozen = false;
    this.network.isUp = this.#isUp;
    this.time.resume();
    for (const process of this.processes) process.replay();
  }

  /** Stops every process, as SIGSTOP does. */
  stopAll(): void {
    for (const process of this.processes) process.stop();
  }

  /** Continues the stopped processes, as SIGCONT does. */
  continueAll(): void {
    for (const process of this.processes) process.continue();
  }

  /** Sets how many milliseconds every event of a program takes; initially 0. */
  setEventCost(ms: number): void {
    this.#eventCostMs = ms;
  }

  get eventCostMs(): number {
    return this.#eventCostMs;
  }

  /** Limits the memory of future page allocations; undefined: no limit. Memory in use stays. */
  limitMemory(bytes: number | undefined): void {
    this.#memoryLimitBytes = bytes;
  }

  get freeMemoryBytes(): number {
    return Math.max(0, Math.min(this.#memoryBytes, this.#memoryLimitBytes ?? this.#memoryBytes) - this.#takenBytes);
  }

  /** @internal Throws `RangeError` if there is not enough memory. */
  takeMemory(bytes: number): void {
    if (bytes > this.freeMemoryBytes) throw new RangeError('Array buffer allocation failed');
    this.#takenBytes += bytes;
  }

  /** @internal */
  giveMemory(bytes: number): void {
    this.#takenBytes -= bytes;
  }

  /** @internal The host as one of its processes sees it. */
  seenBy(process: SimProcess): Host {
    const { parallelism = 8 } = this.#options;
    const { fabric } = this.#world;
    return {
      name: this.name,
      processId: process.id,
      memoryBytes: this.#memoryBytes,
      parallelism,
      hasDevices: false,
      allocate: (bytes: number) => process.allocate(bytes),
      keep: (path: string, bytes: number) => process.keep(path, bytes),
      observeLoop: () => QUIET_LOOP,
      freeMemoryBytes: () => this.freeMemoryBytes,
      residentBytes: () => process.memoryBytes,
      resolve: async (name: string) => fabric.resolve(name, this.network),
      addresses: () => [LOOPBACK, ...this.network.addresses.map(shownAddress)],
      addressTowards: async (target: Endpoint) => this.#addressTowards(target),
    };
  }

  #addressTowards({ host }: Endpoint): string {
    const isOwn = host.startsWith('127.') || host === '::1' || isEveryAddress(host);
    return isOwn ? LOOPBACK.address : this.address;
  }
}

const LOOPBACK: HostAddress = { address: '127.0.0.1', family: 'IPv4', isInternal: true, isLinkLocal: false };

function shownAddress(address: string): HostAddress {
  return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', isInternal: false, isLinkLocal: false };
}
