// Compares how long setting pages takes with an object store and without: runs of nodes of their own processes, in
// turn. Prints the ratio of each pair and the median. With the arguments `node PORT` it is one of the nodes; port 0:
// without an object store.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { median } from '../../../src/bench/measuring/report.js';
import { createStore, TestHostPool } from '../../_support/node/store-fixture.js';
import { S3Server, settingsOf } from '../../_support/objects/s3-server.js';
import { freePort } from '../../_support/support.js';

const PAGE_BYTES = 256 * 2 ** 10;
const BATCH_PAGES = 32;
const SECONDS = 3;
const PAIRS = Number(process.argv[2] ?? 9);

const run = promisify(execFile);

/** Milliseconds of a batch that is set: by the clock, and of the processor, which other programs do not disturb. */
interface Measured {
  readonly clock: number;
  readonly processor: number;
  readonly sent: number;
}

/** Sets batches and reads each once, which makes it a candidate for the store; prints what setting one takes. */
async function measure(port: number): Promise<void> {
  const settings = port === 0 ? {} : settingsOf(port);
  const store = await createStore(await freePort(), { global_segment_size: '256mb', ...settings });
  const host = new TestHostPool(BATCH_PAGES, PAGE_BYTES, 1);
  await store.registerMemPoolHost(host);
  const times: number[] = [];
  const processor: number[] = [];
  const untilMs = performance.now() + SECONDS * 1000;
  for (let batch = 0; performance.now() < untilMs; batch++) {
    const keys = Array.from({ length: BATCH_PAGES }, (_, i) => `${process.pid}-${batch}-${i}`);
    host.component(batch % BATCH_PAGES, 0).fill(batch);
    const [startMs, start] = [performance.now(), process.cpuUsage()];
    await store.batchSetV1(keys, host.indices(0, BATCH_PAGES));
    const { user, system } = process.cpuUsage(start);
    times.push(performance.now() - startMs);
    processor.push((user + system) / 1000);
    await store.batchGetV1(keys, host.indices(0, BATCH_PAGES));
  }
  const sent = (await store.runtime.report()).object_store?.sent_pages ?? 0;
  // The first ones touch the memory of the pool for the first time.
  const mean = (values: readonly number[]): number => {
    const later = values.slice(values.length >> 2);
    return later.reduce((sum, ms) => sum + ms, 0) / later.length;
  };
  console.log(JSON.stringify({ clock: mean(times), processor: mean(processor), sent } satisfies Measured));
  await store.close();
}

async function compare(): Promise<void> {
  const ends: (() => unknown)[] = [];
  const s3 = await S3Server.start({ teardown: (end) => void ends.push(end) });
  const child = async (port: number): Promise<Measured> => {
    const { stdout } = await run(process.execPath, [process.argv[1] as string, 'node', String(port)]);
    return JSON.parse(stdout);
  };
  const ratios: { clock: number; processor: number }[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    const isFirst = pair % 2 === 0;
    const one = await child(isFirst ? 0 : s3.port);
    const other = await child(isFirst ? s3.port : 0);
    const [plain, stored] = isFirst ? [one, other] : [other, one];
    const ratio = { clock: stored.clock / plain.clock, processor: stored.processor / plain.processor };
    ratios.push(ratio);
    const shown = `${plain.processor.toFixed(2)} ms without, ${stored.processor.toFixed(2)} ms with, ${stored.sent} pages sent`;
    console.log(
      `pair ${pair + 1}: ${shown}: ratio ${ratio.processor.toFixed(3)}, by the clock ${ratio.clock.toFixed(3)}`,
    );
  }
  const [processor, clock] = [ratios.map((each) => each.processor), ratios.map((each) => each.clock)];
  console.log(`median ratio ${median(processor).toFixed(3)}, by the clock ${median(clock).toFixed(3)}`);
  for (const end of ends.reverse()) await end();
}

if (process.argv[2] === 'node') await measure(Number(process.argv[3]));
else await compare();
