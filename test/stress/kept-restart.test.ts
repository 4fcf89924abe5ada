import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { loadNative } from '../../src/native/addon/loader.js';
import { freePort } from '../_support/support.js';

const PROGRAM = fileURLToPath(new URL('./kept-restart-program.js', import.meta.url));
const PAGE_BYTES = 2 ** 20;
/** Pages of a pool of 4 GiB, all but what its quarantine and its index of ranges leave free. */
const PAGES = 4090;
const isStress = process.env.MESHCACHE_STRESS_SECONDS !== undefined && loadNative().addon !== null;

interface Life {
  readonly child: ChildProcess;
  /** Numbers of the line that begins with this word. */
  said(word: string): Promise<number[]>;
}

function start(settings: Record<string, unknown>, what: 'fill' | 'read'): Life {
  const args = [PROGRAM, JSON.stringify(settings), String(PAGES), String(PAGE_BYTES), what];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines: string[] = [];
  const input = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  input.on('line', (line) => lines.push(line));
  return {
    child,
    async said(word) {
      for (;;) {
        const line = lines.find((each) => each.startsWith(`${word} `));
        if (line !== undefined) return line.split(' ').slice(1).map(Number);
        if (child.exitCode !== null) throw new Error(`the node has ended before it said ${word}`);
        await Promise.race([once(input, 'line'), once(child, 'exit')]);
      }
    },
  };
}

const title = 'pool path: a node of 4 GiB has its first hit within 2 s of a kill, and all its pages';
(isStress ? test : test.skip)(
  `${title}${isStress ? '' : ' (skipped: only with npm run stress and the addon)'}`,
  async (t) => {
    t.timeout(10 * 60_000);
    const folder = mkdtempSync('/dev/shm/meshcache-restart-');
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const settings = {
      port: await freePort(),
      pool_path: join(folder, 'pool'),
      global_segment_size: '4gb',
      node_id: 'kept',
    };
    const before = start(settings, 'fill');
    t.deepEqual(await before.said('filled'), [PAGES]);
    before.child.kill('SIGKILL');
    await once(before.child, 'exit');
    const after = start(settings, 'read');
    const [readyMs = 0] = await after.said('ready');
    const [firstMs = 0] = await after.said('first');
    const [found = 0, allMs = 0] = await after.said('found');
    after.child.kill('SIGKILL');
    await once(after.child, 'exit');
    t.log(
      `node ready after ${Math.round(readyMs)} ms, first hit after ${Math.round(firstMs)} ms, ${found} of ${PAGES} pages after ${Math.round(allMs)} ms`,
    );
    t.is(found, PAGES);
    t.true(firstMs < 2000, `${firstMs} ms`);
  },
);
