import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { isFreePort, LOOPBACK } from '../../src/processes/free-port.js';
import { systemRandom } from '../../src/system/system-random.js';

/**
 * Ports of tests, in blocks. No system hands them out by itself, and they are not those that the programs of this
 * package choose for themselves.
 */
const TEST_PORTS_FROM = 10_000;
const PORT_BLOCKS_COUNT = 50;
const BLOCK_PORTS_COUNT = 200;

let firstPort: Promise<number> | undefined;
let portsTaken = 0;

/**
 * A port that was free a moment ago, and that no other process of tests takes. While it is free no connection gets it,
 * and nodes that look for a peer there find no server of another test.
 */
export async function freePort(): Promise<number> {
  firstPort ??= claimPorts();
  const first = await firstPort;
  for (let i = 0; i < BLOCK_PORTS_COUNT; i++) {
    const port = first + 1 + (portsTaken++ % (BLOCK_PORTS_COUNT - 1));
    if (await isFreePort(port)) return port;
  }
  throw new Error(`no free port of ${first} to ${first + BLOCK_PORTS_COUNT - 1}`);
}

/** Claims a block of ports by listening on its first one until this process ends; returns that port. */
async function claimPorts(): Promise<number> {
  const start = systemRandom.u32();
  for (let i = 0; i < PORT_BLOCKS_COUNT; i++) {
    const port = TEST_PORTS_FROM + ((start + i) % PORT_BLOCKS_COUNT) * BLOCK_PORTS_COUNT;
    const claim = createServer((socket) => socket.destroy()).unref();
    try {
      await once(claim.listen({ host: LOOPBACK, port, exclusive: true }), 'listening');
      return port;
    } catch {
      // Another process has claimed this block.
    }
  }
  throw new Error(`other processes listen on all of the ports from ${TEST_PORTS_FROM} on`);
}

/** Lets a server listen on a {@link freePort} of loopback, and returns the port. */
export async function listenAlone(server: Server): Promise<number> {
  const port = await freePort();
  await once(server.listen(port, LOOPBACK), 'listening');
  return port;
}

/**
 * Milliseconds that a test waits for a condition: longer than any machine stalls, as a condition is not a promise of
 * speed.
 */
export const PATIENCE_MS = 60_000;

/** Waits until `condition` holds; rejects after `PATIENCE_MS`. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) throw new Error(`condition not met within ${PATIENCE_MS} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Stops all threads of a process; resolves when they stand. Until then it may still answer. */
export async function freeze(process: ChildProcess | undefined): Promise<void> {
  const tasks = `/proc/${process?.pid}/task`;
  process?.kill('SIGSTOP');
  const stateOf = (task: string) => readFileSync(`${tasks}/${task}/stat`, 'utf8').replace(/^.*\) /, '')[0];
  await until(() => readdirSync(tasks).every((task) => stateOf(task) === 'T'));
}

/** Bytes that follow from `seed` alone, without short periods. */
export function content(seed: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let x = (seed * 2654435761 + 1) >>> 0;
  for (let i = 0; i < length; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    bytes[i] = x >>> 24;
  }
  return bytes;
}
