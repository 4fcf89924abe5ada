/**
 * `PATH MAX_BYTES SEED VERSION STEPS`: opens the store, carries out steps of the workload from VERSION on, closes it.
 * Says `opening`, `open`, `closing` and `closed` as it comes to them.
 */

import { silentLogger } from '../../../src/base/environment/log.js';
import { DiskStore } from '../../../src/disk/disk-store.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { pageOf, stepOf, versionIn } from '../../_support/disk/kill-workload.js';

const [path = '', ...numbers] = process.argv.slice(2);
const [maxBytes = 0, seed = 0, firstVersion = 0, steps = 0] = numbers.map(Number);
const WAITING_MAX_BYTES = 4 * 2 ** 20;

function say(what: string): void {
  process.stdout.write(`${what}\n`);
}

async function carryOut(store: DiskStore, version: number): Promise<void> {
  const { kind, key, length } = stepOf(seed, version);
  if (kind === 'put') store.put(key, pageOf(version, length));
  else if (kind === 'remove') store.remove(key);
  else if (kind === 'touch') store.touchBatch([key]);
  else {
    const bytes = await store.get(key);
    if (bytes !== null) versionIn(seed, key, bytes);
  }
}

say('opening');
const env = systemEnvironment({ log: silentLogger });
const store = await DiskStore.open(path, maxBytes, { nodeId: 'killed', env });
say('open');
for (let version = firstVersion; version < firstVersion + steps; version++) {
  await carryOut(store, version);
  if (version % 16 === 0) store.verify();
  if (store.info().queueBytes > WAITING_MAX_BYTES) await store.flush();
}
say('closing');
await store.close();
say('closed');
