import { resolve } from '../../../src/memory/address-space.js';
import { crc32Views } from '../../../src/memory/checksum.js';
import { readTail, STAMP_BYTES } from '../../../src/memory/page-stamp.js';
import {
  ACCESS_LOCAL_WRITE,
  ACCESS_REMOTE_READ,
  type NativeAddon,
  OP_COLUMNS,
  OP_STATUS,
  type OpStatusName,
  RDMA_EVENT_CAUSES,
  RDMA_EVENT_KINDS,
  RDMA_STATS,
  type RdmaEngine,
  type RdmaEngineOptions,
  type RdmaEvent,
  type RdmaEventCause,
  type RdmaEventKind,
  type RdmaProbe,
  type RdmaReport,
  type RdmaStatName,
} from '../../../src/native/addon/contract.js';
import type { RdmaDevice, RdmaHost } from '../../../src/native/devices/rdma-devices.js';

/** Bytes that a read moves before other work can run. */
const STEP_BYTES = 2 ** 20;

interface Registered {
  readonly start: number;
  readonly length: number;
  readonly rkey: number;
  readonly access: number;
}

interface Op {
  readonly endpoint: string;
  readonly rkey: number;
  readonly remoteAddr: number;
  readonly checksum: number;
  readonly stamp: number;
  readonly pieces: readonly (readonly [addr: number, length: number])[];
}

/** Engines of one process that reach each other, and their faults. */
export class FakeFabric {
  readonly engines = new Map<string, FakeEngine>();
  /** Results of reads that are replaced, by endpoint of the peer. */
  readonly faults = new Map<string, OpStatusName>();
  /** Error that `registerMr` throws, with the fields of a `NativeFailure`. */
  registerFailure: Error | undefined;
  /** Bytes that all engines together may lock. */
  lockableBytes = Number.POSITIVE_INFINITY;
  /** Error that `createRdmaEngine` throws. */
  createFailure: Error | undefined;
  /** Whether closing engines report their end. */
  ends = true;
  probe: RdmaProbe = { usable: true, step: '', reason: '' };
  #nextPort = 20_000;

  addon(overrides: Partial<NativeAddon> = {}): NativeAddon {
    const addon: Partial<NativeAddon> = {
      hasRdma: true,
      checksumPath: 'fake',
      rdmaProbe: () => this.probe,
      createRdmaEngine: (options, onReport) => {
        if (this.createFailure !== undefined) throw this.createFailure;
        return new FakeEngine(this, options, onReport);
      },
      ...overrides,
    };
    return addon as NativeAddon;
  }

  /** A machine with this addon and one device. */
  host(overrides: Partial<RdmaHost> = {}): RdmaHost {
    return {
      load: () => ({ addon: this.addon(), reason: '' }),
      devices: () => [fakeDevice()],
      lockedMemory: () => ({ limitBytes: Number.POSITIVE_INFINITY, isPrivileged: false }),
      availableBytes: () => Number.POSITIVE_INFINITY,
      deviceFilesProblem: () => '',
      ...overrides,
    };
  }

  lockedBytes(): number {
    const registered = [...this.engines.values()].flatMap((engine) => [...engine.registered.values()]);
    return registered.reduce((sum, { length }) => sum + length, 0);
  }

  freePort(): number {
    return this.#nextPort++;
  }
}

/** The device `fake0` with one active port that has one GID. */
export function fakeDevice(overrides: Partial<RdmaDevice['ports'][number]> = {}): RdmaDevice {
  const gid = { index: 1, type: 'RoCE v2', netdev: 'eth0', address: '10.77.0.1' } as const;
  const port = { number: 1, state: 'ACTIVE', linkLayer: 'Ethernet', rate: '1 Gb/sec', gids: [gid], ipoibAddresses: [] };
  return { name: 'fake0', ports: [{ ...port, ...overrides }] };
}

export function nativeFailure(call: string, errno: number, message: string): Error {
  return Object.assign(new Error(message), { call, errno, device: 'fake0' });
}

/**
 * Keeps the contract of the addon's engine within one process: reads are copies between live regions, step by step in
 * later turns of the event loop, and nothing is written after an operation was reported.
 */
export class FakeEngine implements RdmaEngine {
  readonly ports: readonly number[];
  readonly options: RdmaEngineOptions;
  /** What it presents and accepts now. */
  tokens: readonly Uint8Array[];
  readonly registered = new Map<number, Registered>();
  readonly submitted: { readonly opCount: number; readonly timeoutMs: number }[] = [];
  readonly #fabric: FakeFabric;
  readonly #onReport: (report: RdmaReport) => void;
  readonly #stats = Object.fromEntries(RDMA_STATS.map((name) => [name, 0])) as Record<RdmaStatName, number>;
  readonly #peers: string[] = [];
  readonly #connected = new Set<string>();
  readonly #failed = new Set<string>();
  readonly #inUse = new Map<number, number>();
  readonly #deregistering = new Set<number>();
  readonly #endpoint: string;
  #running = 0;
  #nextHandle = 1;
  #isClosing = false;

  constructor(fabric: FakeFabric, options: RdmaEngineOptions, onReport: (report: RdmaReport) => void) {
    this.#fabric = fabric;
    this.#onReport = onReport;
    this.options = options;
    this.tokens = options.tokens;
    this.ports = options.rails.map(({ port }) => (port === 0 ? fabric.freePort() : port));
    this.#endpoint = `${options.rails[0]?.address}:${this.ports[0]}`;
    fabric.engines.set(this.#endpoint, this);
  }

  registerMr(start: number, length: number, rkey: number, access: number): { handle: number; lkey: number } {
    if (this.#fabric.registerFailure !== undefined) throw this.#fabric.registerFailure;
    if (resolve(start, length) === null) throw nativeFailure('ibv_reg_mr', 14, 'ibv_reg_mr: Bad address');
    if (this.#fabric.lockedBytes() + length > this.#fabric.lockableBytes)
      throw nativeFailure('ibv_reg_mr', 12, 'ibv_reg_mr: Cannot allocate memory');
    const handle = this.#nextHandle++;
    this.registered.set(handle, { start, length, rkey, access });
    return { handle, lkey: handle + 1000 };
  }

  deregisterMr(handle: number): boolean {
    const isIdle = (this.#inUse.get(handle) ?? 0) === 0;
    this.registered.delete(handle);
    if (isIdle) this.#report({ deregistered: [handle] });
    else this.#deregistering.add(handle);
    return isIdle;
  }

  peer(host: string, port: number): number {
    const endpoint = `${host}:${port}`;
    const known = this.#peers.indexOf(endpoint);
    return known >= 0 ? known : this.#peers.push(endpoint) - 1;
  }

  submit(batchId: number, opCount: number, ops: Float64Array, timeoutMs: number): void {
    this.submitted.push({ opCount, timeoutMs });
    this.#running++;
    this.#run(decode(ops, opCount, this.#peers)).then((statuses) => {
      this.#running--;
      this.#report({ batchIds: [batchId], statuses: [Uint8Array.from(statuses, (name) => OP_STATUS.indexOf(name))] });
      this.#endIfIdle();
    });
  }

  setTokens(tokens: readonly Uint8Array[]): void {
    this.tokens = tokens;
  }

  stats(): Float64Array {
    return Float64Array.from(RDMA_STATS, (name) => this.#stats[name]);
  }

  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    if (this.#fabric.engines.get(this.#endpoint) === this) this.#fabric.engines.delete(this.#endpoint);
    this.#endIfIdle();
  }

  /** Emits an event of the engine. */
  emit(kind: RdmaEventKind, cause: RdmaEventCause, event: Partial<RdmaEvent> = {}): void {
    const blank = { device: '', peer: '', call: '', errno: 0, wcStatus: -1 };
    const numbers = { kind: RDMA_EVENT_KINDS.indexOf(kind), cause: RDMA_EVENT_CAUSES.indexOf(cause) };
    this.#report({ events: [{ ...blank, ...event, ...numbers }] });
  }

  #endIfIdle(): void {
    if (this.#isClosing && this.#running === 0 && this.#fabric.ends) this.#report({ closed: true });
  }

  #report(part: Partial<RdmaReport>): void {
    const nothing = { batchIds: [], statuses: [], events: [], deregistered: [], closed: false };
    setImmediate(() => this.#onReport({ ...nothing, ...part }));
  }

  async #run(ops: readonly Op[]): Promise<OpStatusName[]> {
    const statuses: OpStatusName[] = [];
    await nextTurn();
    for (const op of ops) {
      const status = await this.#read(op);
      statuses.push(status);
      if (status === 'ok') this.#stats.readOps++;
      else this.#stats.failedOps++;
      if (status === 'checksum') this.#stats.checksumFailures++;
      if (status === 'stale') this.#stats.staleOps++;
    }
    return statuses;
  }

  async #read(op: Op): Promise<OpStatusName> {
    if (this.#isClosing) return 'closed';
    const handles = op.pieces.map(([addr, length]) => this.#writable(addr, length));
    if (handles.includes(undefined)) return 'bad_local_memory';
    const fault = this.#fabric.faults.get(op.endpoint);
    const peer = this.#fabric.engines.get(op.endpoint);
    if (fault !== undefined || peer === undefined) {
      this.#connected.delete(op.endpoint);
      this.#failed.add(op.endpoint);
      return fault ?? 'unreachable';
    }
    this.#connect(op.endpoint);
    const length = op.pieces.reduce((sum, piece) => sum + piece[1], 0);
    const source = peer.#readable(op.rkey, op.remoteAddr, length);
    if (source === undefined) return 'refused';
    const targets = op.pieces.flatMap(([addr, bytes]) => resolve(addr, bytes) ?? []);
    for (const handle of handles) this.#hold(handle as number, 1);
    const status = await this.#copy(source, targets, peer);
    for (const handle of handles) this.#hold(handle as number, -1);
    if (status !== 'ok') return status;
    this.#stats.readBytes += length;
    if (op.stamp !== 0 && (length < STAMP_BYTES || readTail(targets, length) !== op.stamp)) return 'stale';
    return op.checksum >= 0 && crc32Views(targets) !== op.checksum ? 'checksum' : 'ok';
  }

  async #copy(source: Uint8Array[], targets: Uint8Array[], peer: FakeEngine): Promise<OpStatusName> {
    let [s, sourceAt] = [0, 0];
    let sinceTurnBytes = 0;
    for (const target of targets) {
      for (let at = 0; at < target.length; ) {
        const from = source[s] as Uint8Array;
        const take = Math.min(from.length - sourceAt, target.length - at, STEP_BYTES);
        target.set(from.subarray(sourceAt, sourceAt + take), at);
        at += take;
        sourceAt += take;
        if (sourceAt === from.length) [s, sourceAt] = [s + 1, 0];
        sinceTurnBytes += take;
        if (sinceTurnBytes < STEP_BYTES) continue;
        sinceTurnBytes = 0;
        await nextTurn();
        if (this.#isClosing) return 'closed';
        if (peer.#isClosing) return 'connection_lost';
      }
    }
    return 'ok';
  }

  #connect(endpoint: string): void {
    if (this.#connected.has(endpoint)) return;
    this.#connected.add(endpoint);
    this.#stats.connects++;
    if (this.#failed.delete(endpoint)) this.#stats.reconnects++;
  }

  #hold(handle: number, by: 1 | -1): void {
    const uses = (this.#inUse.get(handle) ?? 0) + by;
    this.#inUse.set(handle, uses);
    if (uses === 0 && this.#deregistering.delete(handle)) this.#report({ deregistered: [handle] });
  }

  #writable(addr: number, length: number): number | undefined {
    for (const [handle, mr] of this.registered) {
      if (mr.access & ACCESS_LOCAL_WRITE && contains(mr, addr, length)) return handle;
    }
    return undefined;
  }

  #readable(rkey: number, addr: number, length: number): Uint8Array[] | undefined {
    for (const mr of this.registered.values()) {
      if (mr.rkey !== rkey || (mr.access & ACCESS_REMOTE_READ) === 0 || !contains(mr, addr, length)) continue;
      return resolve(addr, length) ?? undefined;
    }
    return undefined;
  }
}

function contains({ start, length }: Registered, addr: number, bytes: number): boolean {
  return addr >= start && addr + bytes <= start + length;
}

function decode(ops: Float64Array, opCount: number, peers: readonly string[]): Op[] {
  const decoded: Op[] = [];
  let piece = opCount * OP_COLUMNS;
  for (let i = 0; i < opCount; i++) {
    const row = ops.slice(i * OP_COLUMNS, (i + 1) * OP_COLUMNS);
    const [peer = 0, rkey = 0, remoteAddr = 0, checksum = -1, stamp = 0, pieceCount = 0] = row;
    const pieces: [number, number][] = [];
    for (let p = 0; p < pieceCount; p++, piece += 2) pieces.push([ops[piece] as number, ops[piece + 1] as number]);
    decoded.push({ endpoint: peers[peer] as string, rkey, remoteAddr, checksum, stamp, pieces });
  }
  if (piece !== ops.length) throw new Error(`submit: ${ops.length} numbers, ${piece} are used`);
  return decoded;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
