import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { Files } from '../../../src/base/environment/files.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import { seededRandom } from '../../../src/base/environment/random.js';
import { type IndexEntry, Journal, type JournalOptions, type Snapshot } from '../../../src/disk/journal/journal.js';
import { systemFiles } from '../../../src/system/files/system-files.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';

export const journalEnv = systemEnvironment({ log: silentLogger });
export const STORE_ID = '00112233445566778899aabbccddeeff';
export const MAX_BYTES = 1 << 20;

/** A folder that is removed with the test. */
export function testFolder(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-journal-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Random numbers below `below`, from a seed that is in the test's log. */
export function seeded(t: ExecutionContext): (below: number) => number {
  const seed = Number(process.env.MESHCACHE_SEED ?? Math.floor(Math.random() * 2 ** 32));
  t.log(`MESHCACHE_SEED=${seed}`);
  const random = seededRandom(seed);
  return (below) => random.u32() % below;
}

/** A plain model of a journal's content. */
export class IndexModel {
  /** Entries, least recently used first. */
  entries: IndexEntry[] = [];

  put(entry: IndexEntry): void {
    this.entries = this.entries.filter(({ key, offset }) => key !== entry.key && offset !== entry.offset);
    this.entries.push(entry);
  }

  remove(key: string): void {
    this.entries = this.entries.filter((entry) => entry.key !== key);
  }

  use(offset: number): void {
    const found = this.entries.find((entry) => entry.offset === offset);
    if (found === undefined) return;
    this.entries = this.entries.filter((entry) => entry !== found);
    this.entries.push(found);
  }

  snapshot(): Snapshot {
    const keys = this.entries.map(({ key }) => key);
    return {
      count: keys.length,
      keysAt: (from, to) => keys.slice(from, to),
      entriesOf: (keys) => {
        const byKey = new Map(this.entries.map((entry) => [entry.key, entry]));
        return keys.map((key) => byKey.get(key) ?? null);
      },
    };
  }
}

/**
 * Files on which nothing is written to the second file of a rewriting that begins after `hold`, until `release`: how
 * fast a disk is decides no test.
 */
export function heldRewriting(files: Files = systemFiles): { readonly files: Files; hold(): void; release(): void } {
  let isHeld = false;
  let release = (): void => {};
  const isReleased = new Promise<void>((resolve) => {
    release = resolve;
  });
  const open: Files['open'] = async (path, options) => {
    const file = await files.open(path, options);
    // A new journal comes into being under this name, too.
    if (!isHeld || !path.endsWith('.new')) return file;
    const { write } = file;
    file.write = async (views, position) => {
      await isReleased;
      return write.call(file, views, position);
    };
    return file;
  };
  const hold = (): void => {
    isHeld = true;
  };
  return { files: { ...files, open }, hold, release };
}

/** A journal and its model, which get the same changes. */
export class Twin {
  readonly model: IndexModel;
  readonly journal: Journal;

  private constructor(model: IndexModel, journal: Journal) {
    this.model = model;
    this.journal = journal;
  }

  static async create(path: string, options: Partial<JournalOptions> = {}, model = new IndexModel()): Promise<Twin> {
    return new Twin(model, await Journal.create(path, optionsFor(model, options)));
  }

  static async open(path: string, options: Partial<JournalOptions> = {}): Promise<Twin> {
    const model = new IndexModel();
    const { journal, entries } = await Journal.open(path, optionsFor(model, options));
    model.entries = entries;
    return new Twin(model, journal);
  }

  put(entry: IndexEntry): void {
    this.model.put(entry);
    this.journal.put(entry);
  }

  /** Puts an entry as the store does: entries in its place, and those for which there is no room, are removed first. */
  replace(entry: IndexEntry): void {
    for (const { key, offset } of this.model.entries) {
      if (key === entry.key || offset === entry.offset) this.remove(key);
    }
    while (!this.journal.hasRoomFor(entry.key)) this.remove((this.model.entries[0] as IndexEntry).key);
    this.put(entry);
  }

  remove(key: string): void {
    this.model.remove(key);
    this.journal.remove(key);
  }

  use(offset: number): void {
    this.model.use(offset);
    this.journal.use(offset);
  }

  /** A random change; with few pages, changes often concern the same one. */
  change(random: (below: number) => number, pages = 20): void {
    const kind = random(100);
    if (kind < 45) this.replace(expiring(entryOf(random(pages), random(pages), random(2 ** 31)), random));
    else if (kind < 50) this.put(expiring(entryOf(random(pages), random(pages), random(2 ** 31)), random));
    else if (kind < 85) this.use(random(pages) * 4096);
    else this.removeAny(random);
  }

  private removeAny(random: (below: number) => number): void {
    const { entries } = this.model;
    if (entries.length > 0) this.remove((entries[random(entries.length)] as IndexEntry).key);
  }
}

export function entryOf(page: number, place = page, checksum = page): IndexEntry {
  return { key: `page-${page}`, offset: place * 4096, length: 4096 + page, checksum };
}

/** The entry, or one in three times with an expiry. */
function expiring(entry: IndexEntry, random: (below: number) => number): IndexEntry {
  return random(3) === 0 ? { ...entry, expires: 1 + random(2 ** 31) } : entry;
}

export function optionsFor(model: IndexModel, options: Partial<JournalOptions> = {}): JournalOptions {
  return {
    storeId: STORE_ID,
    maxBytes: MAX_BYTES,
    env: journalEnv,
    snapshot: () => model.snapshot(),
    ...options,
  };
}

/** The content of a journal with these bytes; rejects as opening it does. */
export async function entriesIn(folder: string, bytes: Uint8Array, rewritten?: Uint8Array): Promise<IndexEntry[]> {
  const path = join(folder, 'copy');
  writeFileSync(path, bytes);
  if (rewritten !== undefined) writeFileSync(`${path}.new`, rewritten);
  const { journal, entries } = await Journal.open(path, optionsFor(new IndexModel()));
  await journal.close();
  return entries;
}

/** Bytes of both files on disk. */
export function bytesOnDisk(path: string): number {
  return [path, `${path}.new`].reduce((sum, name) => sum + sizeOf(name), 0);
}

function sizeOf(path: string): number {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats === undefined ? 0 : Math.max(stats.size, stats.blocks * 512);
}

/** The files that a crash would leave; a second file may be renamed to the first one while they are read. */
export interface CrashedFiles {
  readonly index: Uint8Array;
  readonly rewritten: Uint8Array | undefined;
}

export function crashedFiles(path: string): CrashedFiles {
  return { index: readFileSync(path), rewritten: contentOf(`${path}.new`) };
}

/** The bytes of a file, undefined if it is not there. */
function contentOf(path: string): Uint8Array | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
