import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { ACCESS_REMOTE_READ, type NativeAddon, type RdmaEngine } from '../../src/native/addon/contract.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { EngineBench, request, sourceOf } from '../_support/rdma/engine-bench.js';
import { devices, rdmaTest, suffix } from '../_support/rdma/soft-devices.js';

const run = promisify(execFile);
const PROGRAM = fileURLToPath(new URL('./rdma-reading-program.js', import.meta.url));
const MIB = 1 << 20;

function argumentsOf(source: ReturnType<typeof sourceOf>, what: string): string[] {
  return [source.endpoint, String(source.addr), String(source.rkey), devices[0]?.address as string, what];
}

rdmaTest(`engine: a thread may be terminated in the middle of reads, others go on${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), MIB, 1);
  const target = bench.region(bench.engine(), MIB);
  for (let i = 0; i < 2; i++) {
    const worker = new Worker(PROGRAM, { argv: argumentsOf(sourceOf(server), 'stay') });
    t.is(await new Promise((resolve) => worker.once('message', resolve)), 'read true');
    t.is(await worker.terminate(), 1);
    t.deepEqual(await target.engine.batchRead([request(sourceOf(server), 0, target, 0, MIB)]), [true]);
  }
});

rdmaTest(`engine: a process may exit in the middle of reads, with its own status${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), MIB, 1);
  const program = [PROGRAM, ...argumentsOf(sourceOf(server), 'exit')];
  const failure = await t.throwsAsync(run(process.execPath, program));
  t.like(failure, { code: 7, signal: null, stdout: 'read true\n' });
});

rdmaTest(`engine: one that nobody closed and that has nothing to do ends with its thread${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), MIB, 1);
  const worker = new Worker(PROGRAM, { argv: argumentsOf(sourceOf(server), 'return') });
  t.is(await new Promise((resolve) => worker.once('exit', resolve)), 0);
});

rdmaTest(`engine: a wrong call of the addon throws and reads nothing${suffix}`, async (t) => {
  const addon = loadNative().addon as NativeAddon;
  const options = {
    rails: [{ deviceName: devices[0]?.name ?? '', ibPort: 1, address: devices[0]?.address ?? '', port: 0 }],
    tokens: [],
    queuePairsPerPeer: 1,
    queueDepth: 8,
    readMaxBytes: MIB,
    connectTimeoutMs: 1000,
    stallTimeoutMs: 1000,
    idleProbeMs: 1000,
    acceptedMaxCount: 8,
    spinUs: 0,
    verifyThreads: 1,
  };
  const create = addon.createRdmaEngine as (...args: unknown[]) => RdmaEngine;
  for (const wrong of [
    undefined,
    {},
    { ...options, rails: [] },
    { ...options, rails: [7] },
    { ...options, spinUs: -1 },
  ]) {
    t.throws(() => create(wrong, () => {}), { instanceOf: TypeError });
  }
  t.throws(() => create({ ...options, tokens: [new Uint8Array(63)] }, () => {}), { instanceOf: TypeError });
  t.throws(() => create(options, 'no function'), { instanceOf: TypeError });
  const rail = { ...options.rails[0], address: '192.0.2.1' };
  const failed = t.throws(() => create({ ...options, rails: [rail] }, () => {}));
  t.true(typeof (failed as unknown as { call: unknown }).call === 'string');

  let close: () => void = () => {};
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  const engine = create(options, (report: { closed: boolean }) => report.closed && close());
  const any = engine as unknown as Record<string, (...args: unknown[]) => unknown>;
  const op = [0, 1, 4096, -1, 7, 1, 4096, 10];
  for (const ops of [undefined, [], op, new Float32Array(8), Float64Array.from(op)]) {
    t.throws(() => any.submit?.(1, 1, ops, 1000), { instanceOf: TypeError }, 'there is no peer 0 yet');
  }
  t.is(engine.peer('192.0.2.1', 1), 0);
  for (const [index, value] of [
    [0, 1],
    [1, 2 ** 32],
    [2, -1],
    [3, -2],
    [4, 2 ** 48],
    [5, 2],
    [6, 0.5],
    [7, Number.NaN],
  ] as const) {
    t.throws(() => any.submit?.(1, 1, Float64Array.from(op).with(index, value), 1000), { instanceOf: TypeError });
  }
  t.throws(() => any.submit?.(1, 2, Float64Array.from(op), 1000), { instanceOf: TypeError });
  t.throws(() => any.registerMr?.(0, 4096, 1, ACCESS_REMOTE_READ), { instanceOf: TypeError });
  t.throws(() => any.registerMr?.(4096, 4096, 1, 4), { instanceOf: TypeError });
  t.like(
    t.throws(() => any.registerMr?.(4096, 4096, 1, ACCESS_REMOTE_READ)),
    { call: 'ibv_reg_mr', device: devices[0]?.name },
  );
  t.throws(() => any.peer?.(7, 7), { instanceOf: TypeError });
  t.throws(() => any.peer?.('192.0.2.1', 65_536), { instanceOf: TypeError });
  t.true(engine.deregisterMr(12_345), 'nothing to wait for');
  engine.close();
  engine.close();
  await closed;
  t.like(
    t.throws(() => engine.registerMr(4096, 4096, 1, ACCESS_REMOTE_READ)),
    { call: 'registerMr' },
  );
  t.is(engine.stats().length, 16);
  engine.close();
});
