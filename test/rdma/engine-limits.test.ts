import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { TransferEngine } from '../../src/native/transfer-engine.js';
import { EngineBench, request, sourceOf } from '../_support/rdma/engine-bench.js';
import { knownHost } from '../_support/rdma/known-host.js';
import { openFiles, verbsObjects } from '../_support/rdma/machine-state.js';
import { devices, rdmaTest, suffix } from '../_support/rdma/soft-devices.js';

const MIB = 2 ** 20;
const READ_BYTES = 4096;
const CYCLES = Number(process.env.MESHCACHE_RDMA_CYCLES ?? 600);
/** The first cycles fill caches of the process and of the allocator. */
const FIRST_CYCLES = 300;
const RSS_SLACK_BYTES = 16 * MIB;

rdmaTest(`engine: ${CYCLES} cycles of connect, read and disconnect leak nothing${suffix}`, async (t) => {
  t.timeout(600_000);
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), MIB, 1);
  const target = bench.region(bench.engine(), MIB);
  const options = { engine: { queuePairsPerPeer: 1, queueDepth: 4 } };
  const cycle = async (at: number): Promise<void> => {
    const reader = new TransferEngine({ bindHost: devices[0]?.address, host: knownHost, ...options });
    const { rkey: _rkey, ...range } = reader.registerMr(target.memory.addr + BigInt(at), READ_BYTES);
    const own = { ...target, engine: reader, handle: { ...target.handle, ...range } };
    const [isRead] = await reader.batchRead([request(sourceOf(server), at, own, at, READ_BYTES)]);
    await reader.close();
    if (!isRead) throw new Error('the read of a cycle failed');
  };
  /** Two at a time: each waits for the kernel now and then. */
  const cycles = async (count: number): Promise<void> => {
    let left = count;
    const one = async (at: number): Promise<void> => {
      while (left-- > 0) await cycle(at);
    };
    await Promise.all([one(0), one(READ_BYTES)]);
  };
  const startedMs = performance.now();
  await cycles(FIRST_CYCLES);
  const settled = async (): Promise<number> => {
    while (server.engine.stats().acceptedConnections > 0) await new Promise((resolve) => setTimeout(resolve, 10));
    return process.memoryUsage.rss();
  };
  const rss = await settled();
  const [objects, files] = [verbsObjects(), openFiles()];
  await cycles(CYCLES - FIRST_CYCLES);
  const grownBytes = (await settled()) - rss;
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  t.log(`${CYCLES} cycles in ${seconds} s; resident memory grew by ${Math.round(grownBytes / 1024)} KiB`);
  t.deepEqual(verbsObjects(), objects);
  t.is(openFiles(), files);
  t.true(grownBytes < RSS_SLACK_BYTES, `grown by ${grownBytes} bytes`);
});

rdmaTest(`engine: memory that may not be locked is refused with the limit and what to do${suffix}`, async (t) => {
  const stdout = await runLimited(2 * MIB, 'rdma-registering-program.js', String(16 * MIB));
  const { code, message } = JSON.parse(stdout) as { code: string; message: string };
  t.is(code, 'ERR_RDMA', message);
  t.regex(message, /\b2 MiB at most/, 'the limit');
  t.regex(message, /ulimit -l/);
});

rdmaTest(`transport: more memory is read into than may be locked at a time${suffix}`, async (t) => {
  const [regions, address] = [8, devices[0]?.address as string];
  const stdout = await runLimited(32 * MIB, 'rdma-crowded-program.js', address, String(regions), String(10 * MIB));
  t.deepEqual(JSON.parse(stdout), { read: regions, right: regions });
});

/** What a program of these tests writes where it may lock so many bytes. */
async function runLimited(bytes: number, program: string, ...args: readonly string[]): Promise<string> {
  const path = fileURLToPath(new URL(`./${program}`, import.meta.url));
  // For who has that capability the limit does not count.
  const limited = `ulimit -l ${bytes / 1024}; exec setpriv --bounding-set=-ipc_lock "$@"`;
  const { stdout } = await promisify(execFile)('sh', ['-c', limited, '-', process.execPath, path, ...args]);
  return stdout;
}
