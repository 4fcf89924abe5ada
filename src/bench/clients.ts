import { join } from 'node:path';
import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { TemporaryFolder } from '../processes/at-exit.js';
import { findFreePort, LOOPBACK } from '../processes/free-port.js';
import { findPython } from '../processes/programs.js';
import { PythonEngine } from '../processes/python-engine.js';
import { systemRandom } from '../system/system-random.js';
import { PeerProcess } from './measuring/peer-process.js';
import { type BenchOptions, type BenchReport, type Contender, median, race, round3 } from './measuring/report.js';
import {
  awaitMembers,
  benchKeys,
  benchStorage,
  destinationPool,
  isStamped,
  type PeerAnswer,
  type PeerCommand,
  stampPage,
} from './measuring/store-pages.js';

const BATCH_PAGES = 128;
const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const EXISTS_PAGE_BYTES = 2 ** 20;
/** Most pages per pass, because passes of many small pages take long. */
const PASS_MAX_PAGES = 8192;
const FULL_WORK_BYTES = 2 ** 29;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
const POOL_SLACK = 1.25;
const EXISTS_CALLS = 1_000;
/** Ways to move pages: three for pages of a registered pool, and one for pages as objects. */
const MODES = ['direct', 'staged', 'bytes', 'objects'] as const;
type Mode = (typeof MODES)[number];

/**
 * Compares a Python engine at the client socket of this process's node with calls in the node itself: reads of pages in
 * another process's pool, sets, and lookups, for each way in which pages can travel.
 */
export async function clientsBench(options: BenchOptions): Promise<BenchReport> {
  const python = await findPython();
  if (python === undefined) throw new Error('bench clients needs python3 (Debian: apt install python3)');
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  options.progress('starting three processes');
  const bench = await ClientsBench.start(python, workBytes);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) rows.push(...(await bench.measure(pageBytes, options)));
    const exists = await bench.measureExists(options);
    return {
      title: 'clients: a Python engine at the client socket of a node, beside calls in the node itself',
      rows,
      notes: [
        `Batches of ${BATCH_PAGES} pages, ${formatSize(workBytes)} a pass; medians of ${options.rounds} interleaved rounds. get: from the pool of another process over TCP.`,
        'ratio: to the same call in the node. staged has a copy in the engine on top, bytes the socket; objects are made of bytes, by the best way. cpu_s_per_gb: of the engine.',
        exists,
        ...bench.notes,
      ],
    };
  } finally {
    await bench.close();
  }
}

/** Processor time of the engine for one pass. */
interface EngineCost {
  readonly mode: Mode;
  readonly secondsPerGb: number;
}

class ClientsBench {
  readonly notes: string[] = [];
  readonly #peer: PeerProcess<PeerCommand, PeerAnswer>;
  readonly #store: MeshCacheStore;
  readonly #engine: PythonEngine;
  readonly #folder: TemporaryFolder;
  readonly #memory: HostRegion;
  #passes = 0;
  /** Costs of the engine's passes in the current race. */
  readonly #cpu: EngineCost[] = [];

  private constructor(parts: {
    peer: PeerProcess<PeerCommand, PeerAnswer>;
    store: MeshCacheStore;
    engine: PythonEngine;
    folder: TemporaryFolder;
    memory: HostRegion;
  }) {
    this.#peer = parts.peer;
    this.#store = parts.store;
    this.#engine = parts.engine;
    this.#folder = parts.folder;
    this.#memory = parts.memory;
  }

  static async start(python: string, workBytes: number): Promise<ClientsBench> {
    const folder = new TemporaryFolder('meshcache-bench-');
    const socket = join(folder.path, 'node.sock');
    const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
    const poolBytes = Math.ceil(workBytes * POOL_SLACK);
    const peer = new PeerProcess<PeerCommand, PeerAnswer>('store');
    const engine = new PythonEngine(python, 'meshcache._bench');
    let store: MeshCacheStore | undefined;
    try {
      await peer.call({ kind: 'start', clusters: [{ discoveryAddr, config: {} }], poolBytes, workBytes });
      store = await MeshCacheStore.create(benchStorage(discoveryAddr, poolBytes, { client_socket: socket }));
      await awaitMembers(store, 2);
      const memory = HostRegion.allocate(workBytes);
      await memory.prefault();
      const namespace = { is_mla: true, dtype: '', layout: '', tag: '' };
      const { modes } = await engine.call({ op: 'start', socket, modes: MODES, work_bytes: workBytes, namespace });
      const bench = new ClientsBench({ peer, store, engine, folder, memory });
      for (const mode of MODES) {
        if (mode !== 'objects' && modes?.[mode] !== mode)
          bench.notes.push(`${mode} is not to be had here: its pages went as ${modes?.[mode]}.`);
      }
      return bench;
    } catch (error) {
      engine.end();
      await store?.close();
      peer.end();
      folder.remove();
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#engine.end();
    await this.#store.close();
    this.#memory.free();
    this.#peer.end();
    this.#folder.remove();
  }

  async measure(pageBytes: number, options: BenchOptions): Promise<BenchReport['rows'][number][]> {
    const pages = Math.min(PASS_MAX_PAGES, Math.floor(this.#memory.length / pageBytes));
    const keys = benchKeys(pageBytes, pages);
    options.progress(`publishing ${pages} pages of ${formatSize(pageBytes)}`);
    await this.#store.clear();
    await this.#peer.call({ kind: 'publish', pageBytes, pages });
    await this.#store.registerMemPoolHost(destinationPool(this.#memory, pageBytes));
    const rows: BenchReport['rows'][number][] = [];
    for (const call of ['get', 'set'] as const) {
      if (call === 'set') await this.#stampAll(pages, pageBytes);
      else await this.#engine.call({ op: 'wipe' });
      const contenders = call === 'get' ? this.#getters(keys, pageBytes) : this.#setters(keys, pageBytes);
      const measured = await race(contenders, {
        rounds: options.rounds,
        totalBytes: pages * pageBytes,
        clear: () => {
          if (call === 'get') this.#memory.bytes().fill(0);
        },
        progress: (round, name) =>
          options.progress(`${call} ${formatSize(pageBytes)}: round ${round} of ${options.rounds}, ${name}`),
      });
      const cpu = this.#cpu.splice(0);
      rows.push(
        ...measured.map((row, i) => ({ call, page: formatSize(pageBytes), ...row, cpu_s_per_gb: cpuPerGb(cpu, i) })),
      );
    }
    return rows;
  }

  async measureExists({ quick, progress }: BenchOptions): Promise<string> {
    progress('exists of 128 keys');
    const calls = quick ? 50 : EXISTS_CALLS;
    const keys = benchKeys(EXISTS_PAGE_BYTES, QUICK_WORK_BYTES / EXISTS_PAGE_BYTES);
    const known = Array.from({ length: BATCH_PAGES }, (_, i) => keys[i % keys.length] as string);
    const here: number[] = [];
    const there: number[] = [];
    for (let round = 0; round < 5; round++) {
      const times: number[] = [];
      for (let i = 0; i < calls / 5; i++) {
        const startMs = performance.now();
        await this.#store.batchExists(known);
        times.push((performance.now() - startMs) * 1000);
      }
      here.push(median(times));
      there.push((await this.#engine.call({ op: 'exists', keys: known, calls: calls / 5 })).p50_us ?? 0);
    }
    const [inNode, inEngine] = [median(here), median(there)];
    return `exists of ${BATCH_PAGES} keys, p50: in the node ${inNode.toFixed(0)} us, in the engine ${inEngine.toFixed(0)} us, ${(inEngine - inNode).toFixed(0)} us on top.`;
  }

  #getters(keys: readonly string[], pageBytes: number): Contender[] {
    const own: Contender = {
      name: 'batchGetV1 in the node',
      read: () => this.#inBatches(keys, (some, slots) => this.#store.batchGetV1(some, slots)),
      isRight: () => keys.every((_, page) => isStamped(this.#memory.bytes(page * pageBytes, pageBytes), page)),
    };
    return [own, ...MODES.map((mode) => this.#engineContender('get', mode, keys, pageBytes))];
  }

  #setters(keys: readonly string[], pageBytes: number): Contender[] {
    const own: Contender = {
      name: 'batchSetV1 in the node',
      read: () => this.#inBatches(this.#fresh(keys), (some, slots) => this.#store.batchSetV1(some, slots)),
      isRight: () => true,
    };
    return [own, ...MODES.map((mode) => this.#engineContender('set', mode, keys, pageBytes))];
  }

  #engineContender(op: 'get' | 'set', mode: Mode, keys: readonly string[], pageBytes: number): Contender {
    // The engine checks the bytes in the first pass, which is not timed.
    let isRight: boolean | undefined;
    return {
      name: `Python, ${mode}`,
      read: async () => {
        const asked = op === 'get' ? keys : this.#fresh(keys);
        const command = { op, mode, keys: asked, batch: BATCH_PAGES, page_bytes: pageBytes };
        const { missed, cpu_seconds: cpuSeconds = 0 } = await this.#engine.call(command);
        this.#cpu.push({ mode, secondsPerGb: (cpuSeconds * 1e9) / (keys.length * pageBytes) });
        if (missed !== 0) throw new Error(`${mode}: ${missed} pages of ${formatSize(pageBytes)} were not moved`);
        isRight ??=
          (await this.#engine.call({ op: 'check', pages: keys.length, page_bytes: pageBytes })).right === true;
      },
      isRight: () => isRight === true,
    };
  }

  /** Keys that were never set before, because a page that already exists is not copied. */
  #fresh(keys: readonly string[]): string[] {
    this.#passes++;
    return keys.map((key) => `${this.#passes} ${key}`);
  }

  async #stampAll(pages: number, pageBytes: number): Promise<void> {
    for (let page = 0; page < pages; page++) stampPage(this.#memory.bytes(page * pageBytes, pageBytes), page);
    await this.#engine.call({ op: 'stamp', pages, page_bytes: pageBytes });
  }

  async #inBatches(
    keys: readonly string[],
    move: (keys: string[], slots: number[]) => Promise<boolean[]>,
  ): Promise<void> {
    for (let first = 0; first < keys.length; first += BATCH_PAGES) {
      const some = keys.slice(first, first + BATCH_PAGES);
      const results = await move(
        some,
        some.map((_, i) => first + i),
      );
      const missed = results.filter((isDone) => !isDone).length;
      if (missed > 0) throw new Error(`${missed} pages were not moved`);
    }
  }
}

/** Median cost of contender `i`; `-` for the first one, which is the node itself. */
function cpuPerGb(costs: readonly EngineCost[], i: number): number | string {
  const own = costs.filter(({ mode }) => mode === MODES[i - 1]).map(({ secondsPerGb }) => secondsPerGb);
  return own.length === 0 ? '-' : round3(median(own));
}
