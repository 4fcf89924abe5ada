import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchOptions, type BenchReport, median, round3 } from '../measuring/report.js';
import { type Member, PeerProcesses, prefixOf, type StoreName } from './sides.js';

const PAGE_BYTES = 2 ** 20;
const PAGES = 100;
/** Bytes of all pages, and of one that is read beside them. */
const WORK_BYTES = (PAGES + 1) * PAGE_BYTES;
const AMPLE_STORE_BYTES = 4 * WORK_BYTES;
/** A store without room for all pages. */
const SMALL_STORE_PAGES = 64;
/** Pages of a full store that were put last. */
const LAST_PAGES = 32;
/** Time between two writes into a full store, in which it can evict. */
const PAUSE_S = 0.01;
/** Attempts to read all pages before anything fails, and the time between two. */
const READ_ATTEMPTS = 10;
const READ_PAUSE_MS = 500;
/** Nodes fail with the settings that they have by default. */
const NODE_CONFIG = { directory_replicas: 2, heartbeat_interval: 2, member_ttl: 6 };
/** Environment variables that turn Mooncake's checksums on. */
const CHECKSUMS = { MOONCAKE_STORE_CHECKSUM: '1' };
/** Longest wait for a page of a frozen process, and time until pages are read again, in seconds. */
const FULL = { readMaxS: 20, againS: 10 } as const;
const QUICK = { readMaxS: 3, againS: 1 } as const;
/** A frozen process goes on so long after the longest wait for its page. */
const THAW_SLACK_MS = 1_000;

/** What a store did in a situation, by the name of the figure. */
type Figures = Readonly<Record<string, string | number>>;

/** A driver's answer about pages that it has put or read. */
interface Moved {
  readonly error?: string;
  readonly seconds: number;
  readonly missed: number;
  readonly wrong: number;
}

/** A driver's answer about one page that may take long and pages that it has read meanwhile. */
interface Stalled extends Moved {
  /** How long the one page took; absent if it took longer than the driver waits. */
  readonly stalled_seconds?: number;
  readonly is_page?: boolean;
}

/**
 * Compares what Mooncake Store and meshcache do when the server for metadata is killed, when the holder of a page is
 * frozen and when the store is full, and what checksums cost. Every page that is read is compared.
 */
export async function failuresBench(options: BenchOptions, python: string): Promise<BenchReport> {
  const { readMaxS, againS } = options.quick ? QUICK : FULL;
  const situations: readonly (readonly [string, number, (store: TestedStore) => Promise<Figures>])[] = [
    ['server killed', AMPLE_STORE_BYTES, (store) => killServer(store, againS)],
    ['holder frozen', AMPLE_STORE_BYTES, (store) => freezeHolder(store, readMaxS)],
    ['store full, a burst', SMALL_STORE_PAGES * PAGE_BYTES, (store) => fillStore(store, 0)],
    ['store full, in time', SMALL_STORE_PAGES * PAGE_BYTES, (store) => fillStore(store, PAUSE_S)],
  ];
  const rows: BenchReport['rows'][number][] = [];
  const wrong: string[] = [];
  /** Executes `measure` with stores of which each has processes of its own. */
  const withStores = async <T>(
    names: readonly StoreName[],
    storeBytes: number,
    measure: (...stores: TestedStore[]) => Promise<T>,
  ): Promise<T> => {
    const stores = [];
    try {
      for (const name of names) stores.push(await TestedStore.prepare(name, python, storeBytes));
      return await measure(...stores);
    } finally {
      for (const store of stores) {
        await store.processes.end();
        if (store.wrongPages > 0) wrong.push(`${store.name}: ${store.wrongPages} pages had wrong bytes`);
      }
    }
  };
  for (const [situation, storeBytes, measure] of situations) {
    const figures: Figures[] = [];
    for (const name of ['mooncake', 'meshcache'] as const) {
      options.progress(`${situation}: ${name}`);
      figures.push(await withStores([name], storeBytes, measure));
    }
    const [mooncake, meshcache] = figures as [Figures, Figures];
    for (const [figure, value] of Object.entries(mooncake)) {
      rows.push({ situation, figure, mooncake: value, meshcache: meshcache[figure] as string | number });
    }
  }
  options.progress('checksums');
  const speeds = await withStores(['mooncake', 'mooncake', 'meshcache'], AMPLE_STORE_BYTES, (...stores) =>
    raceChecksums(stores, options.rounds),
  );
  return {
    title: 'peers: Mooncake Store and meshcache over TCP when something fails, both from Python',
    rows: [...rows, ...checksumRows(speeds)],
    notes: [
      `${PAGES} pages of ${PAGE_BYTES / 2 ** 20} MiB. A page counts as read if its bytes are right.`,
      `server killed: Mooncake's master; of three nodes the one that runs the discovery and has a third of the directory. The pages are in other processes. They are read at once and ${againS} s later; then the server is started again, and they are read another ${againS} s later.`,
      `holder frozen: stopped by SIGSTOP. A client reads one of its pages, for ${readMaxS} s at most, and in a second thread all pages of another process.`,
      `store full: all pages are put one after the other into ${SMALL_STORE_PAGES} MiB; in time: ${PAUSE_S * 1000} ms after each other.`,
      `checksums: reads of pages of another process in one batch, medians of ${options.rounds} interleaved rounds. meshcache always checks.`,
    ],
    ...(wrong.length === 0 ? {} : { failure: wrong.join('; ') }),
  };
}

/** Pages of a process that lives on, read after the server for metadata was killed, and after it is back. */
async function killServer(store: TestedStore, againS: number): Promise<Figures> {
  await store.add();
  const [owner, reader] = [await store.add(), await store.add()];
  await store.publish(owner, reader);
  await store.processes.killServer(store.name);
  const atOnce = await store.read(reader);
  await sleep(againS * 1000);
  const later = await store.read(reader);
  await store.processes.restartServer(store.name);
  await sleep(againS * 1000);
  const restarted = await store.read(reader);
  return {
    'pages read at once': atOnce.pages,
    'pages read later': later.pages,
    'pages read after its restart': restarted.pages,
  };
}

/** A page of a frozen process, and meanwhile pages of another one. */
async function freezeHolder(store: TestedStore, readMaxS: number): Promise<Figures> {
  const [other, frozen, reader] = [await store.add(), await store.add(), await store.add()];
  await store.publish(other, reader);
  await store.publish(frozen, reader, 'frozen');
  frozen.holder.signal('SIGSTOP');
  // A store may keep both reads waiting.
  const thawing = setTimeout(() => frozen.holder.signal('SIGCONT'), readMaxS * 1000 + THAW_SLACK_MS);
  const command = { op: 'stalled', stalled: prefixOf('frozen'), prefix: prefixOf('pages'), limit: readMaxS };
  const stalled = await reader.client.call<Stalled>({ ...command, pages: PAGES, batch: PAGES });
  clearTimeout(thawing);
  const { stalled_seconds: seconds, is_page: isPage } = stalled;
  return {
    'one page of it, s': seconds === undefined ? `more than ${readMaxS}` : round3(seconds),
    'result of that read': isPage === undefined ? 'none yet' : isPage ? 'the page' : 'a miss',
    'pages of another one read meanwhile': store.rightOf(stalled),
    'these pages, s': round3(stalled.seconds),
  };
}

/** More pages than the store has room for, one after the other, with a pause after each. */
async function fillStore(store: TestedStore, pause: number): Promise<Figures> {
  const { client } = await store.add();
  const { missed, seconds } = await client.call<Moved>({ ...publishCommand('pages', 1), pause });
  const last = await client.call<Moved>({ op: 'last', prefix: prefixOf('pages'), pages: PAGES, count: LAST_PAGES });
  return {
    [`writes of ${PAGES} refused`]: missed,
    'these writes, s': round3(seconds),
    [`last ${LAST_PAGES} pages read`]: store.rightOf(last, LAST_PAGES),
  };
}

/** Speeds of reads in GB/s: of Mooncake without its checksums, of Mooncake with them, and of meshcache. */
async function raceChecksums(stores: readonly TestedStore[], rounds: number): Promise<number[]> {
  const readers: Member[] = [];
  for (const [s, store] of stores.entries()) {
    const variables = s === 1 ? CHECKSUMS : {};
    const [owner, reader] = [await store.add(variables), await store.add(variables)];
    await store.publish(owner, reader);
    readers.push(reader);
  }
  const speeds = stores.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [s, store] of stores.entries()) {
      const { pages, seconds } = await store.read(readers[s] as Member);
      speeds[s]?.push((pages * PAGE_BYTES) / seconds / 1e9);
    }
  }
  return speeds.map(median);
}

function checksumRows([bare = 0, checked = 0, meshcache = 0]: readonly number[]): BenchReport['rows'] {
  const row = (figure: string, mooncake: number, ours: number | string): BenchReport['rows'][number] => ({
    situation: 'checksums',
    figure,
    mooncake: round3(mooncake),
    meshcache: typeof ours === 'number' ? round3(ours) : ours,
  });
  return [
    row('GB/s without', bare, '-'),
    row('GB/s with', checked, meshcache),
    row('with, relative to Mooncake without', checked / bare, meshcache / bare),
  ];
}

/** A store whose members fail. */
class TestedStore {
  readonly name: StoreName;
  readonly processes: PeerProcesses;
  /** Pages that were read with other bytes than those that were put. */
  wrongPages = 0;

  private constructor(name: StoreName, processes: PeerProcesses) {
    this.name = name;
    this.processes = processes;
  }

  static async prepare(name: StoreName, python: string, storeBytes: number): Promise<TestedStore> {
    const settings = { workBytes: WORK_BYTES, storeBytes, config: NODE_CONFIG };
    return new TestedStore(name, await PeerProcesses.prepare(python, settings));
  }

  add(variables: Readonly<Record<string, string>> = {}): Promise<Member> {
    return this.processes.add(this.name, { variables });
  }

  /** Puts all pages into the holder of the owner, and reads them once from there. */
  async publish(owner: Member, reader: Member, name = 'pages'): Promise<void> {
    const own = `own ${name}`;
    for (const [{ client }, prefix] of [[owner, name] as const, [reader, own] as const]) {
      const { missed } = await client.call<Moved>(publishCommand(prefix, PAGES));
      if (missed > 0) throw new Error(`${this.name}: ${missed} of ${PAGES} pages could not be set`);
    }
    // On a busy machine a store gives up on the other process now and then.
    for (let attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
      const { pages } = await this.read(reader, name);
      if (pages === PAGES) return;
      await sleep(READ_PAUSE_MS);
    }
    throw new Error(`${this.name}: the pages could not be read before anything failed; try again on a quieter machine`);
  }

  async read({ client }: Member, name = 'pages'): Promise<{ readonly pages: number; readonly seconds: number }> {
    const prefix = prefixOf(name);
    const moved = await client.call<Moved>({ op: 'move', call: 'read', prefix, pages: PAGES, batch: PAGES });
    return { pages: this.rightOf(moved), seconds: moved.seconds };
  }

  /** The pages that were read with the right bytes. Notes the others. */
  rightOf({ missed, wrong }: Moved, pages = PAGES): number {
    this.wrongPages += wrong;
    return pages - missed - wrong;
  }
}

function publishCommand(name: string, batch: number): Readonly<Record<string, unknown>> {
  return { op: 'publish', prefix: prefixOf(name), pages: PAGES, page_bytes: PAGE_BYTES, batch };
}
