import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import type { Server } from 'node:net';
import { findFreePort, LOOPBACK } from '../../src/processes/free-port.js';
import { systemRandom } from '../../src/system/system-random.js';

/** Ports that a process of tests takes in turn. */
const PORTS_IN_TURN = 100;
let portsTaken = systemRandom.u32();

/**
 * A port that was free a moment ago. No system hands it out by itself, so no connection takes it while it is free.
 * Nodes look for a peer that has ended at the port that the system gave it, and find no server of another test there,
 * as they may at ports of the system. Processes of tests that run side by side take different ports, unless their
 * process ids end in the same two digits.
 */
export function freePort(): Promise<number> {
  const first = process.pid * PORTS_IN_TURN;
  return findFreePort({ ...systemRandom, u32: () => first + (portsTaken++ % PORTS_IN_TURN) });
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
