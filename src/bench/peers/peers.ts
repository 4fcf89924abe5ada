import { formatSize } from '../../base/sizes.js';
import { findPython } from '../../processes/programs.js';
import type { PythonEngine } from '../../processes/python-engine.js';
import { type BenchOptions, type BenchReport, median, round3 } from '../measuring/report.js';
import { failuresBench } from './failures.js';
import { mooncakePython } from './mooncake.js';
import { PeerSides, prefixOf } from './sides.js';

const BATCH_PAGES = 128;
const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20, 4 * 2 ** 20] as const;
const SINGLE_PAGE_BYTES = 4 * 2 ** 10;
/** Most pages of a pass, because passes of many small pages take long. */
const PASS_MAX_PAGES = 8192;
const FULL_WORK_BYTES = 2 ** 28;
const QUICK_WORK_BYTES = 8 * 2 ** 20;
const SINGLE_CALLS = 500;
const QUICK_SINGLE_CALLS = 20;
/**
 * Rounds before the counted ones: code of a node is compiled while it runs, and memory of both stores is provided when
 * it is first written. Pages up to this size need more of them.
 */
const WARM_ROUNDS = 6;
const WARM_MAX_PAGE_BYTES = 64 * 2 ** 10;
const FEW_WARM_ROUNDS = 1;
const MAP_READY_LIMIT_MS = 30_000;

type Row = BenchReport['rows'][number];
type PlaceName = 'remote' | 'local' | 'fresh';

/** A kind of batch call, and the pages that it is about: of the other process, of the own one, or new ones. */
const BATCH_CALLS: readonly (readonly [name: string, call: string, place: PlaceName])[] = [
  ['read, remote', 'read', 'remote'],
  ['read, local', 'read', 'local'],
  ['write', 'write', 'fresh'],
  ['bytes out, remote', 'bytes_out', 'remote'],
  ['bytes in', 'bytes_in', 'fresh'],
];

/** A kind of call about one page, likewise. */
const ONE_PAGE_CALLS: typeof BATCH_CALLS = [
  ['one exists', 'exists', 'remote'],
  ['one read, remote', 'read', 'remote'],
  ['one read, local', 'read', 'local'],
  ['one write', 'write', 'fresh'],
];

/** A driver's answer to a measurement. */
interface Measured {
  readonly error?: string;
  readonly seconds: number;
  readonly missed: number;
  readonly wrong: number;
}

/**
 * Compares Python clients of two nodes with Python clients of Mooncake Store, at its best settings over TCP, in
 * interleaved rounds. The bytes of every page of every pass are compared.
 */
export async function peersBench(options: BenchOptions): Promise<BenchReport> {
  const python = await findPython();
  if (python === undefined) throw new Error('bench peers needs python3 (Debian: apt install python3 python3-venv)');
  const program = await mooncakePython(python, options.progress);
  if (options.failures) return failuresBench(options, program);
  const { burn = 0 } = options;
  options.progress('starting two stores');
  const sides = await PeerSides.start(program, options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES, burn);
  try {
    const bench = new PeersBench(sides, options);
    await bench.measure();
    return {
      title: 'peers: Mooncake Store and meshcache over TCP, both from Python',
      rows: bench.rows,
      notes: [
        `Batches of at most ${BATCH_PAGES} pages; medians of ${options.rounds} interleaved rounds, after ${options.quick ? FEW_WARM_ROUNDS : WARM_ROUNDS} (pages above ${formatSize(WARM_MAX_PAGE_BYTES)}: ${FEW_WARM_ROUNDS}) to warm up, with ${burn} processes that keep cores busy.`,
        'ratio: median of the rounds; of speeds for batches (more is better), of times for one call (less is better). missed: pages that Mooncake, meshcache did not move, which count for neither.',
      ],
      ...(bench.wrong === '' ? {} : { failure: bench.wrong }),
    };
  } finally {
    await sides.close();
  }
}

class PeersBench {
  readonly rows: Row[] = [];
  /** What was wrong about the bytes of pages; empty if nothing was. */
  wrong = '';
  readonly #sides: PeerSides;
  readonly #options: BenchOptions;
  #passes = 0;

  constructor(sides: PeerSides, options: BenchOptions) {
    this.#sides = sides;
    this.#options = options;
  }

  async measure(): Promise<void> {
    const workBytes = this.#options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
    for (const pageBytes of PAGE_SIZES_BYTES) {
      const pages = Math.min(PASS_MAX_PAGES, Math.floor(workBytes / pageBytes));
      await this.#publish(pageBytes, pages);
      for (const [name, call, place] of BATCH_CALLS) {
        const command = { op: 'move', call, pages, batch: BATCH_PAGES };
        await this.#race({ name, place, pageBytes, pages, command, unit: 'gb_per_s' });
      }
      await this.#remove(pages);
    }
    const pages = this.#options.quick ? QUICK_SINGLE_CALLS : SINGLE_CALLS;
    const pageBytes = SINGLE_PAGE_BYTES;
    await this.#publish(pageBytes, pages);
    for (const [name, call, place] of ONE_PAGE_CALLS) {
      await this.#race({ name, place, pageBytes, pages, command: { op: 'calls', call, pages }, unit: 'us' });
    }
    const mapReader = await this.#startMapReader(pages);
    const command = { op: 'calls', call: 'exists', pages };
    await this.#race({ name: 'one exists, map', place: 'remote', pageBytes, pages, command, unit: 'us', mapReader });
  }

  /** Sets remote pages in the owners and local ones in the readers, and fills the buffers that are written from. */
  async #publish(pageBytes: number, pages: number): Promise<void> {
    this.#options.progress(`publishing ${pages} pages of ${formatSize(pageBytes)}`);
    const { mooncake, meshcache } = this.#sides;
    for (const { owner, reader } of [mooncake, meshcache]) {
      for (const [driver, place] of [[owner, 'remote'] as const, [reader, 'local'] as const]) {
        const command = { op: 'publish', prefix: prefixOf(place), pages, page_bytes: pageBytes, batch: BATCH_PAGES };
        const { missed } = await driver.call<Measured>(command);
        if (missed > 0) throw new Error(`${missed} pages of ${formatSize(pageBytes)} could not be set`);
      }
    }
  }

  async #remove(pages: number): Promise<void> {
    for (const { owner, reader } of [this.#sides.mooncake, this.#sides.meshcache]) {
      await owner.call({ op: 'remove', prefix: prefixOf('remote'), pages });
      await reader.call({ op: 'remove', prefix: prefixOf('local'), pages });
    }
  }

  /** Starts the client that asks the map. Resolves when its node has heard of all pages. */
  async #startMapReader(pages: number): Promise<PythonEngine> {
    this.#options.progress('starting a node that answers from its map');
    const reader = await this.#sides.startMapReader();
    const untilMs = performance.now() + MAP_READY_LIMIT_MS;
    const command = { op: 'calls', call: 'exists', prefix: prefixOf('remote'), pages };
    while ((await reader.call<Measured>(command)).missed > 0) {
      if (performance.now() > untilMs) throw new Error('the map of the cluster does not fill');
    }
    return reader;
  }

  async #race(race: {
    readonly name: string;
    readonly place: PlaceName;
    readonly pageBytes: number;
    readonly pages: number;
    readonly command: Readonly<Record<string, unknown>>;
    readonly unit: 'gb_per_s' | 'us';
    readonly mapReader?: PythonEngine;
  }): Promise<void> {
    const { name, place, pageBytes, pages, unit } = race;
    const readers = [this.#sides.mooncake.reader, race.mapReader ?? this.#sides.meshcache.reader] as const;
    const figures: [number[], number[]] = [[], []];
    const missed: [number, number] = [0, 0];
    const isSmall = pageBytes <= WARM_MAX_PAGE_BYTES && !this.#options.quick;
    const warmRounds = isSmall ? WARM_ROUNDS : FEW_WARM_ROUNDS;
    // The stores take turns in beginning a round.
    for (let round = 1 - warmRounds; round <= this.#options.rounds; round++) {
      const at = round > 0 ? `round ${round} of ${this.#options.rounds}` : 'warming up';
      this.#options.progress(`${name} ${formatSize(pageBytes)}: ${at}`);
      const prefix = prefixOf(place === 'fresh' ? `fresh ${this.#passes++}` : place);
      for (const side of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
        const measured = await readers[side].call<Measured>({ ...race.command, prefix });
        missed[side] += measured.missed;
        const store = side === 0 ? 'Mooncake' : 'meshcache';
        if (measured.wrong > 0)
          this.wrong ||= `${store}: ${measured.wrong} pages had wrong bytes (${name}, ${formatSize(pageBytes)})`;
        const moved = pages - measured.missed - measured.wrong;
        const figure = unit === 'us' ? measured.seconds * 1e6 : (moved * pageBytes) / measured.seconds / 1e9;
        if (round > 0) figures[side].push(figure);
      }
    }
    const [mooncake, meshcache] = figures;
    const ratio = median(meshcache.map((figure, i) => figure / (mooncake[i] as number)));
    this.rows.push({
      call: name,
      page: formatSize(pageBytes),
      mooncake_gb_per_s: unit === 'us' ? '-' : round3(median(mooncake)),
      meshcache_gb_per_s: unit === 'us' ? '-' : round3(median(meshcache)),
      mooncake_us: unit === 'us' ? Math.round(median(mooncake)) : '-',
      meshcache_us: unit === 'us' ? Math.round(median(meshcache)) : '-',
      ratio: round3(ratio),
      missed: missed.join(', '),
    });
  }
}
