/**
 * `CONFIG SEED VERSION`: a node that reads all pages that it finds, then sets, overwrites, deletes and clears pages
 * until it is killed. It says what it does, one line each, before and after: a line has left the process when the next
 * thing begins.
 */
import { writeSync } from 'node:fs';
import { seededRandom } from '../../../src/base/environment/random.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { digestOf, KEY_COUNT, keyOf, pageOf } from '../../_support/kept/kill-pages.js';
import { createStore } from '../../_support/node/store-fixture.js';

const [config = '{}', seed = '0', firstVersion = '0'] = process.argv.slice(2);
const IN_FLIGHT_COUNT = 6;

function say(...words: (string | number)[]): void {
  // The stream would keep lines to itself while the parent is slow, and they would go with the process.
  for (let isWritten = false; !isWritten; ) {
    try {
      isWritten = writeSync(1, `${words.join(' ')}\n`) > 0;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  }
}

say('opening');
const { port, ...settings } = JSON.parse(config) as { port: number };
const store = await createStore(port, settings, systemClock);
say('open', store.stats().poolEntries);
for (let number = 0; number < KEY_COUNT; number++) {
  const bytes = await store.get(keyOf(number));
  say('found', number, bytes === null ? 'none' : digestOf(bytes));
}
say('read');

const random = seededRandom(Number(seed));
const busy = new Set<number>();
const last = new Map<number, number>();
let version = Number(firstVersion);
let isEnding = false;

async function change(number: number): Promise<void> {
  const dice = random.u32() % 100;
  const again = last.get(number);
  if (dice < 10) {
    say('begin', number, 'none');
    const [isDone] = await store.delete([keyOf(number)]);
    last.delete(number);
    say('end', number, isDone ? 'none' : 'unknown');
    return;
  }
  // The same bytes once more: the newest content, in the same place.
  const next = dice < 25 && again !== undefined ? again : ++version;
  say('begin', number, next);
  const isDone = await store.set(keyOf(number), pageOf(number, next));
  if (isDone) last.set(number, next);
  say('end', number, isDone ? next : 'unknown');
}

async function changeOn(): Promise<void> {
  while (!isEnding) {
    const number = random.u32() % KEY_COUNT;
    if (busy.has(number)) {
      await new Promise((resolve) => setImmediate(resolve));
      continue;
    }
    busy.add(number);
    await change(number);
    busy.delete(number);
  }
}

process.once('SIGTERM', async () => {
  isEnding = true;
  await store.close();
  say('closed');
  process.exit();
});
await Promise.all(Array.from({ length: IN_FLIGHT_COUNT }, changeOn));
