/**
 * `CONFIG PAGES PAGE_BYTES fill|read`: a node that fills its pool, or one that reads all its pages as soon as it can.
 * Says `ready` with the milliseconds since the process began, `first` with those until the first hit, and `found` with
 * the number of pages with the right bytes.
 */

import { systemClock } from '../../../src/system/system-clock.js';
import { createStore } from '../../_support/node/store-fixture.js';
import { content } from '../../_support/support.js';

const [config = '{}', pages = '0', pageBytes = '0', what = 'read'] = process.argv.slice(2);
const { port, ...settings } = JSON.parse(config) as { port: number };
const count = Number(pages);
const bytes = content(1, Number(pageBytes));

function say(...words: (string | number)[]): void {
  process.stdout.write(`${words.join(' ')}\n`);
}

/** The page of a number: its number is in its first bytes. */
function page(number: number): Uint8Array {
  new DataView(bytes.buffer).setUint32(0, number);
  return bytes;
}

const store = await createStore(port, settings, systemClock);
say('ready', performance.now());
if (what === 'fill') {
  let set = 0;
  for (let i = 0; i < count; i++) if (await store.set(`key ${i}`, page(i))) set++;
  say('filled', set);
} else {
  while ((await store.get('key 0')) === null) await new Promise((resolve) => setTimeout(resolve, 1));
  say('first', performance.now());
  let found = 0;
  for (let i = 0; i < count; i++) {
    const read = await store.get(`key ${i}`);
    if (read !== null && Buffer.compare(read, page(i)) !== 0) throw new Error(`key ${i} has other bytes`);
    if (read !== null) found++;
  }
  say('found', found, performance.now());
}
await new Promise(() => setInterval(() => {}, 1 << 30));
