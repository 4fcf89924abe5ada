import { type ChildProcess, execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test from 'ava';
import { loadNative } from '../../src/native/addon/loader.js';
import type { RollingReport, RollingSetup } from '../_programs/kept/rolling-program.js';
import { freePort } from '../_support/support.js';

const PROGRAM = fileURLToPath(new URL('./kept-rolling-program.js', import.meta.url));
const CLI = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const NODES = 5;
const SHAPE = { nodes: NODES, conversations: 80, pages: 16, pageBytes: 64 * 2 ** 10 };
const isStress = process.env.MESHCACHE_STRESS_SECONDS !== undefined && loadNative().addon !== null;
const SECOND_MS = 1000;

interface Second {
  asked: number;
  found: number;
}

/** The five nodes, and what their loads have found second by second. */
class Rolling {
  readonly seconds = new Map<number, Second>();
  readonly foundAgain: number[] = [];
  wrong = 0;
  readonly #children: ChildProcess[] = [];
  readonly #port: number;
  readonly #folder: string;

  constructor(port: number, folder: string) {
    this.#port = port;
    this.#folder = folder;
  }

  async start(node: number, isNew: boolean): Promise<void> {
    const child = fork(PROGRAM, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#children[node] = child;
    const config = {
      node_id: `node-${node}`,
      pool_path: join(this.#folder, `${node}`),
      global_segment_size: '96mb',
      wait_for_directory: true,
      control_port: 0,
    };
    const setup: RollingSetup = { port: this.#port, config, node, isNew, ...SHAPE };
    child.send(setup);
    const [ready] = (await once(child, 'message')) as [RollingReport];
    if (ready.kind !== 'ready') throw new Error('the node is not ready');
    if (!isNew) this.foundAgain.push(ready.found);
    child.on('message', (report: RollingReport) => {
      if (report.kind !== 'load') return;
      const second = Math.floor(performance.now() / SECOND_MS);
      const { asked, found } = this.seconds.get(second) ?? { asked: 0, found: 0 };
      this.seconds.set(second, { asked: asked + report.asked, found: found + report.found });
      this.wrong += report.wrong;
    });
  }

  load(node: number): void {
    this.#children[node]?.send('load');
  }

  /** Takes the load from the node, drains it, and waits for its end. */
  async drain(node: number): Promise<void> {
    const child = this.#children[node] as ChildProcess;
    child.kill('SIGUSR2');
    const ended = once(child, 'exit');
    const addr = ['--discovery-addr', `127.0.0.1:${this.#port}`];
    await promisify(execFile)(process.execPath, [CLI, 'drain', `node-${node}`, ...addr, '--timeout', '30']);
    await ended;
  }

  async end(): Promise<void> {
    for (const child of this.#children) child.kill('SIGTERM');
    await Promise.all(this.#children.map((child) => child.exitCode ?? once(child, 'exit')));
  }
}

const title =
  'pool path: a rolling restart of five nodes under load costs less than 2 % of the prefix hits in any second';
(isStress ? test : test.skip)(
  `${title}${isStress ? '' : ' (skipped: only with npm run stress and the addon)'}`,
  async (t) => {
    t.timeout(10 * 60_000);
    const folder = mkdtempSync('/dev/shm/meshcache-rolling-');
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const cluster = new Rolling(await freePort(), folder);
    for (let node = 0; node < NODES; node++) await cluster.start(node, true);
    for (let node = 0; node < NODES; node++) cluster.load(node);
    await sleep(10 * SECOND_MS);
    const beganAt = Math.floor(performance.now() / SECOND_MS);
    for (let node = 0; node < NODES; node++) {
      await cluster.drain(node);
      await cluster.start(node, false);
      cluster.load(node);
      await sleep(3 * SECOND_MS);
    }
    const endedAt = Math.floor(performance.now() / SECOND_MS);
    await cluster.end();
    const rates = [...cluster.seconds].filter(([, { asked }]) => asked > 0);
    const rateOf = (some: typeof rates): number[] => some.map(([, { asked, found }]) => found / asked);
    const before = rateOf(rates.filter(([second]) => second > beganAt - 5 && second < beganAt));
    const during = rateOf(rates.filter(([second]) => second >= beganAt && second < endedAt));
    t.log(
      `before: ${Math.min(...before).toFixed(4)} to ${Math.max(...before).toFixed(4)}; ${during.length} s of restarts: lowest ${Math.min(...during).toFixed(4)}`,
    );
    t.log(`pages found again: ${cluster.foundAgain.join(', ')}; wrong: ${cluster.wrong}`);
    t.is(cluster.wrong, 0);
    t.true(Math.min(...during) > Math.min(...before) - 0.02, during.map((rate) => rate.toFixed(3)).join(' '));
    t.true(
      cluster.foundAgain.every((count) => count >= 200),
      cluster.foundAgain.join(),
    );
  },
);
