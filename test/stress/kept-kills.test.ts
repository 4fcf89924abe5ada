import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { loadNative } from '../../src/native/addon/loader.js';
import { KillRun } from '../_support/kept/kill-run.js';

const KILLS = Number(process.env.MESHCACHE_KILLS ?? (process.env.MESHCACHE_STRESS_SECONDS === undefined ? 10 : 200));
const { addon, reason } = loadNative();
const title = `pool path: a node killed ${KILLS} times has the pages that were whole, and no other bytes`;

(addon === null ? test.skip : test)(`${title}${addon === null ? ` (skipped: ${reason})` : ''}`, async (t) => {
  t.timeout(20 * 60_000);
  const folder = mkdtempSync('/dev/shm/meshcache-kills-');
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const seed = Number(process.env.MESHCACHE_SEED ?? Date.now() % 2 ** 31);
  t.log(`seed ${seed}`);
  // Of all tests at the same time that may meet at a port, only this one has these keys.
  const namespace = `kills ${seed} ${process.pid}`;
  const settings = { pool_path: join(folder, 'pool'), global_segment_size: '32mb', node_id: 'killed', namespace };
  const run = new KillRun(seed, settings);
  for (let i = 0; i < KILLS; i++) await run.live();
  const { kills, found, due } = run.figures();
  t.log(`${kills} lives, ${found} pages found again, ${due} of them had to be`);
  t.true(found >= due && due > KILLS);
});
