import test from 'ava';
import { DiskStore } from '../../src/disk/disk-store.js';
import { type Run, runAndKill } from '../_support/disk/kill-run.js';
import { bytesOnDisk, checkRanges, dice, indexedIn, listening, seedOf } from '../_support/disk/kill-support.js';
import { isOnlyWritten, versionIn } from '../_support/disk/kill-workload.js';
import { temporaryFolder } from '../_support/disk/mounts.js';

const ROUNDS = Number(process.env.MESHCACHE_KILL_ROUNDS ?? 12);
const MAX_BYTES = 24 * 2 ** 20;
/** Versions of one round. */
const ROUND_VERSIONS = 100_000;
/** Pages that are being written at a time may be listed in another order than they were put in. */
const ORDER_SLACK = 16;

type Moment = Pick<Run, 'after' | 'delayMs' | 'steps'>;

interface Tally {
  rounds: number;
  endedBefore: number;
  listed: number;
  misses: number;
  setAside: number;
  openMs: number;
  order: number;
}

/** Opens what was left behind and reads all of it; the order of pages that are only written. */
async function check(path: string, seed: number, tally: Tally): Promise<void> {
  if ((await bytesOnDisk(path)) > MAX_BYTES) throw new Error(`${await bytesOnDisk(path)} bytes are on disk`);
  const indexed = await indexedIn(path);
  const { env, said } = listening();
  const startMs = performance.now();
  const store = await DiskStore.open(path, MAX_BYTES, { nodeId: 'checker', env });
  tally.openMs = Math.max(tally.openMs, performance.now() - startMs);
  try {
    if (said.length > 0) tally.setAside++;
    if (indexed !== null && said.length > 0) throw new Error(`was set aside: ${said.join('; ')}`);
    const entries = indexed ?? [];
    checkRanges(entries, store.info().capacityBytes);
    const keys = store.keys();
    if (JSON.stringify(keys) !== JSON.stringify(entries.map(({ key }) => key)))
      throw new Error('other keys than indexed');
    store.verify();
    const [usedBytes, count] = store.stats();
    const sum = entries.reduce((bytes, { length }) => bytes + length, 0);
    if (usedBytes !== sum || count !== keys.length) throw new Error(`${usedBytes} bytes of ${count}, should be ${sum}`);
    const versions: number[] = [];
    for (const key of keys) {
      const bytes = await store.get(key);
      tally.listed++;
      if (bytes === null) {
        tally.misses++;
        continue;
      }
      const version = versionIn(seed, key, bytes);
      if (version !== undefined && isOnlyWritten(key)) versions.push(version);
    }
    if (store.info().corruptPages !== keys.length - store.keys().length) throw new Error('misses are not counted');
    const sorted = versions.toSorted((a, b) => a - b);
    for (const [i, version] of versions.entries())
      tally.order = Math.max(tally.order, Math.abs(sorted.indexOf(version) - i));
    if (tally.order > ORDER_SLACK) throw new Error(`recency is off by ${tally.order} pages`);
    if ((await bytesOnDisk(path)) > MAX_BYTES) throw new Error(`${await bytesOnDisk(path)} bytes are on disk`);
  } finally {
    await store.close();
  }
}

function momentOf(random: (below: number) => number): Moment {
  const kind = random(8);
  if (kind === 0) return { after: 'opening', delayMs: random(40), steps: 1000 };
  if (kind === 1) return { after: 'closing', delayMs: random(30), steps: 1 + random(200) };
  return { after: 'open', delayMs: 5 + random(396), steps: ROUND_VERSIONS };
}

test('disk kill: killed at any moment, it has whole pages, their bytes, and the order of their use', async (t) => {
  t.timeout(60_000 + ROUNDS * 10_000);
  const seed = seedOf(t);
  const random = dice(seed);
  const path = temporaryFolder(t);
  const tally: Tally = { rounds: 0, endedBefore: 0, listed: 0, misses: 0, setAside: 0, openMs: 0, order: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    const moment = momentOf(random);
    try {
      const end = await runAndKill(path, { ...moment, maxBytes: MAX_BYTES, seed, version: round * ROUND_VERSIONS });
      if (end === 'ended') tally.endedBefore++;
      // Some are killed twice before anybody looks.
      if (random(3) > 0 || round === ROUNDS - 1) await check(path, seed, tally);
    } catch (error) {
      t.fail(`round ${round}, ${JSON.stringify(moment)}: ${(error as Error).stack}`);
      break;
    }
    tally.rounds++;
  }
  t.log(JSON.stringify(tally));
  t.is(tally.rounds, ROUNDS);
  t.true(tally.listed > ROUNDS);
  t.is(tally.misses, 0, 'the index listed pages that were not written, or written over');
});

test('disk kill: killed while the very first opening was under way, it can be opened', async (t) => {
  t.timeout(120_000);
  const seed = seedOf(t);
  const random = dice(seed);
  const tally: Tally = { rounds: 0, endedBefore: 0, listed: 0, misses: 0, setAside: 0, openMs: 0, order: 0 };
  for (let round = 0; round < Math.min(ROUNDS, 40); round++) {
    const path = temporaryFolder(t);
    await runAndKill(path, { after: 'opening', delayMs: random(40), steps: 50, maxBytes: MAX_BYTES, seed, version: 0 });
    await check(path, seed, tally);
  }
  t.log(JSON.stringify(tally));
  t.is(tally.misses, 0);
});
