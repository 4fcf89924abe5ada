import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import * as api from '../../src/core/index.js';
import { computeGolden } from '../_programs/core/golden-vectors.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

const golden: unknown = JSON.parse(readFileSync('test/data/golden.json', 'utf8'));

for (const name of BINARIES) {
  test(`golden: vectors hold in the main thread (${name})`, (t) => {
    t.deepEqual(JSON.parse(JSON.stringify(computeGolden(api, freshCore(name)))), golden);
  });
}

test('golden: vectors hold in a worker thread', async (t) => {
  const worker = new Worker(new URL('./core-golden-worker.js', import.meta.url));
  const [vectors] = await once(worker, 'message');
  await worker.terminate();
  t.deepEqual(JSON.parse(JSON.stringify(vectors)), golden);
});
