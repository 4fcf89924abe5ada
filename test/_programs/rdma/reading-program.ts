/*
 * An engine that reads without end, in a thread or a process of its own; how it ends is what the test is about. The arguments are
 * the source's address and port, its memory, its rkey, and what to do: `stay`, `exit` or `return`.
 */
import { isMainThread, parentPort } from 'node:worker_threads';
import { silentLogger } from '../../../src/base/environment/log.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { TransferEngine } from '../../../src/native/transfer-engine.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';

const LENGTH = 1 << 20;
const IN_FLIGHT = 8;

const [remoteNode, addr, rkey, bindHost, what] = process.argv.slice(2) as [string, string, string, string, string];
const engine = new TransferEngine({ bindHost, env: systemEnvironment({ log: silentLogger }) });
const region = HostRegion.allocate(IN_FLIGHT * LENGTH);
engine.registerMr(region.addr, region.length);

async function read(slot: number): Promise<boolean> {
  const [isRead] = await engine.batchRead([
    {
      remoteNode,
      remoteAddr: BigInt(addr),
      rkey: Number(rkey),
      localAddr: region.addr + BigInt(slot * LENGTH),
      length: LENGTH,
    },
  ]);
  return isRead === true;
}

async function readForever(slot: number): Promise<void> {
  while (await read(slot));
}

/** Writes the text, and returns when it is on its way. */
function say(text: string): void {
  if (isMainThread) process.stdout.write(`${text}\n`);
  else parentPort?.postMessage(text);
}

say(`read ${await read(0)}`);
if (what === 'return') {
  // The engine is not closed: no read is in progress, so nothing keeps the process alive.
} else {
  for (let slot = 0; slot < IN_FLIGHT; slot++) void readForever(slot);
  if (what === 'exit') process.exit(7);
}
