/*
 * Reads a region of another host again and again until that fails, then watches whether anything is still written into the buffer. The
 * argument is {@link WatchOptions} as JSON; each line that it writes is a {@link WatchEvent} as JSON.
 */
import { readFileSync } from 'node:fs';
import { HostRegion } from '../../../src/memory/host-region.js';
import { type ReadRequest, TransferEngine } from '../../../src/native/transfer-engine.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { stderrLogger } from '../../../src/system/system-log.js';
import { isSame, tiled } from '../../_support/rdma/bytes.js';
import { knownHost } from '../../_support/rdma/known-host.js';
import { staysUntouched } from '../../_support/rdma/watch.js';
import { OP_BYTES, type WatchEvent, type WatchOptions } from '../../_support/rdma/watch-protocol.js';

/** `tiled` does not fill memory with this byte. */
const UNTOUCHED = 0xee;

const options = JSON.parse(process.argv[2] as string) as WatchOptions;
const { source, seed } = options;
let skewMs = 0;
const clock = { ...systemClock, nowMs: () => systemClock.nowMs() + skewMs };
const engine = new TransferEngine({
  bindHost: options.bindHost,
  host: knownHost,
  engine: { stallTimeoutMs: options.stallTimeoutMs, dscp: options.dscp },
  env: systemEnvironment({ clock, log: stderrLogger('info') }),
});
const target = HostRegion.allocate(source.length);
engine.registerMr(target.addr, target.length);
const expected = tiled(seed, source.length);
const requests: ReadRequest[] = [];
for (let at = 0; at < source.length; at += OP_BYTES) {
  requests.push({
    remoteNode: source.endpoint,
    remoteAddr: BigInt(source.addr) + BigInt(at),
    rkey: source.rkey,
    localAddr: target.addr + BigInt(at),
    length: Math.min(OP_BYTES, source.length - at),
  });
}

function tell(event: WatchEvent): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

/** All bytes that the device received from the network, whatever their destination. */
function receivedBytes(): number {
  const netdev = readFileSync(`/sys/class/infiniband/${engine.deviceName}/ports/1/gid_attrs/ndevs/0`, 'latin1').trim();
  return Number(readFileSync(`/sys/class/net/${netdev}/statistics/rx_bytes`, 'latin1'));
}

/** Number of operations that returned true with wrong bytes. */
function wrongOps(results: readonly boolean[]): number {
  return results.filter((isRead, i) => {
    const at = i * OP_BYTES;
    const { length } = requests[i] as ReadRequest;
    return isRead && !isSame(target.bytes(at, length), expected.subarray(at, at + length));
  }).length;
}

async function read(): Promise<{ results: boolean[]; wrong: number; elapsedMs: number }> {
  target.bytes().fill(0);
  const startedMs = performance.now();
  const results = await engine.batchRead(requests);
  const elapsedMs = Math.round(performance.now() - startedMs);
  return { results, wrong: wrongOps(results), elapsedMs };
}

/** Reads until a whole batch succeeds, without a pause after failures. */
async function readAtLast(event: 'first' | 'recovered'): Promise<void> {
  for (let tries = 1; ; tries++) {
    const { results, wrong } = await read();
    if (results.every(Boolean)) return tell({ event, wrong, tries });
    skewMs += 120_000;
  }
}

// Under emulation the first messages to another host may take long.
await readAtLast('first');
let wrong = 0;
for (let batches = 1; ; batches++) {
  const batch = await read();
  wrong += batch.wrong;
  if (batch.results.includes(false)) {
    const receivedBefore = receivedBytes();
    const isUntouched = await staysUntouched(target.bytes(), { byte: UNTOUCHED, forMs: options.watchMs });
    const falseOps = batch.results.filter((isRead) => !isRead).length;
    const lateBytes = receivedBytes() - receivedBefore;
    tell({ event: 'lost', wrong, batches, falseOps, elapsedMs: batch.elapsedMs, isUntouched, lateBytes });
    break;
  }
  tell({ event: 'read', wrong, batches, elapsedMs: batch.elapsedMs });
  if (batches === options.batches) break;
}
if (options.recovers) await readAtLast('recovered');
await engine.close();
