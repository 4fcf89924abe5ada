import { isSame, tiled } from '../_support/rdma/bytes.js';
import { EngineBench, request, sourceOf } from '../_support/rdma/engine-bench.js';
import { openFiles, sentPackets, verbsObjects } from '../_support/rdma/machine-state.js';
import { devices, rdmaTest, suffix } from '../_support/rdma/soft-devices.js';
import { staysUntouched } from '../_support/rdma/watch.js';
import { freePort } from '../_support/support.js';

const KIB = 1024;
const MIB = 1024 * KIB;
const UNTOUCHED = 0xee;
/** Batches of a megabyte end within this, a second for the bytes included. */
const STALL_TIMEOUT_MS = 1_500;
const WATCH_MS = 1_000;
/** Far from the deadline of what is being read, and from what a busy machine takes. */
const CLOSE_MAX_MS = 10_000;

rdmaTest(`engine: a peer killed in the middle of reads costs its own operations only${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const [doomed, living] = [await bench.process({ seed: 1 }), await bench.process({ seed: 2 })];
  const target = bench.region(bench.engine({ engine: { stallTimeoutMs: STALL_TIMEOUT_MS } }), 2 * MIB);
  const requests = Array.from({ length: 32 }, (_, i) =>
    request(sourceOf(i % 2 === 0 ? doomed : living), (i >> 1) * 64 * KIB, target, i * 64 * KIB, 64 * KIB),
  );
  t.true((await target.engine.batchRead(requests)).every(Boolean));
  let results = requests.map(() => true);
  let batches = 0;
  let endedMs = 0;
  const reading = (async () => {
    while (results.every(Boolean)) {
      results = await target.engine.batchRead(requests);
      batches++;
    }
    endedMs = performance.now();
  })();
  // It dies while a batch is under way: the reading never pauses.
  while (batches < 2) await new Promise(setImmediate);
  await doomed.kill();
  const killedMs = performance.now();
  await reading;
  t.true(
    endedMs - killedMs < STALL_TIMEOUT_MS + 2 * 2_000 + 500,
    `ended ${Math.round(endedMs - killedMs)} ms after it`,
  );
  for (const [i, isRead] of results.entries()) {
    const bytes = target.memory.bytes(i * 64 * KIB, 64 * KIB);
    const at = (i >> 1) * 64 * KIB;
    if (i % 2 === 1) t.true(isRead, `operation ${i}, on the peer that lives`);
    if (isRead) t.true(isSame(bytes, tiled(1 + (i % 2), MIB).subarray(at, at + 64 * KIB)), `operation ${i}`);
  }
  t.true(await staysUntouched(target.memory.bytes(), { byte: UNTOUCHED, forMs: WATCH_MS }));
  const onLiving = requests.filter((_, i) => i % 2 === 1);
  t.true((await target.engine.batchRead(onLiving)).every(Boolean));
});

rdmaTest(
  `engine: a peer started again on its address and port is read from, but not by its old rkey${suffix}`,
  async (t) => {
    const bench = new EngineBench(t);
    const bindPort = await freePort();
    const first = await bench.process({ bindPort, seed: 1 });
    const target = bench.region(bench.engine({ engine: { stallTimeoutMs: STALL_TIMEOUT_MS } }), 2 * MIB);
    const old = request(sourceOf(first), 0, target, 0, MIB);
    t.deepEqual(await target.engine.batchRead([old]), [true]);
    await first.kill();
    const second = await bench.process({ bindPort, seed: 2 });
    t.is(second.region.endpoint, first.region.endpoint);
    const anew = request(sourceOf(second), 0, target, MIB, MIB);
    let results = await target.engine.batchRead([old, anew]);
    t.false(results[0]);
    if (!results[1]) {
      // The loss of the old connection took it along.
      bench.skewMs += 120_000;
      results = await target.engine.batchRead([old, anew]);
    }
    t.deepEqual(results, [false, true]);
    t.true(isSame(target.memory.bytes(MIB, MIB), tiled(2, MIB)));
  },
);

rdmaTest(`engine: who does not know the secret is rejected before there is a queue pair${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine({ clusterSecret: 'secret' }), 64 * KIB, 1);
  const open = bench.region(bench.engine(), 64 * KIB, 2);
  const readers = [undefined, 'another secret', 'secret'].map((clusterSecret) =>
    bench.region(bench.engine({ clusterSecret }), 64 * KIB),
  );
  const results = [];
  for (const reader of readers) {
    results.push(...(await reader.engine.batchRead([request(sourceOf(server), 0, reader, 0, 64 * KIB)])));
  }
  t.deepEqual(results, [false, false, true]);
  t.true(server.engine.stats().refusedConnections >= 2);
  t.true(server.engine.stats().acceptedConnections > 0);
  // Who has the secret does not read from who cannot show it either.
  const [, , knowing] = readers as [unknown, unknown, (typeof readers)[0]];
  t.deepEqual(await knowing.engine.batchRead([request(sourceOf(open), 0, knowing, 0, 1)]), [false]);
  // It has left, which the other side hears of in its own time; it does not stay.
  while (open.engine.stats().acceptedConnections > 0) await new Promise((resolve) => setTimeout(resolve, 10));
});

rdmaTest(`engine: IPv6${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const bindHost = devices[0]?.address6;
  t.truthy(bindHost, 'the device has an IPv6 address');
  const server = bench.region(bench.engine({ bindHost }), MIB, 1);
  t.true(server.engine.localEndpoint().startsWith(`[${bindHost}]:`));
  const target = bench.region(bench.engine({ bindHost }), MIB);
  t.deepEqual(await target.engine.batchRead([request(sourceOf(server), 0, target, 0, MIB)]), [true]);
  t.true(isSame(target.memory.bytes(), server.memory.bytes()));
});

rdmaTest(`engine: reads are spread over all devices${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const options = { bindHost: undefined, deviceNames: devices.map(({ name }) => name) };
  const server = bench.region(bench.engine(options), 16 * MIB, 1);
  const target = bench.region(bench.engine(options), 16 * MIB);
  const requests = Array.from({ length: 64 }, (_, i) =>
    request(sourceOf(server), i * 256 * KIB, target, i * 256 * KIB, 256 * KIB),
  );
  const { engine } = target;
  do {
    t.true((await engine.batchRead(requests)).every(Boolean));
  } while (engine.stats().connections < devices.length * engine.queuePairsPerPeer);
  target.memory.bytes().fill(0);
  const before = devices.map(({ name }) => sentPackets(name));
  t.true((await target.engine.batchRead(requests)).every(Boolean));
  t.true(isSame(target.memory.bytes(), server.memory.bytes()));
  const packets = devices.map(({ name }, i) => sentPackets(name) - (before[i] as number));
  t.log(`packets: ${packets.join(', ')}`);
  const all = packets.reduce((a, b) => a + b);
  for (const [i, sent] of packets.entries()) t.true(sent > all / 4, `device ${i} sent ${sent} of ${all} packets`);
});

rdmaTest(`engine: closing ends reads under way, and leaves nothing behind${suffix}`, async (t) => {
  const [objects, files] = [verbsObjects(), openFiles()];
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), 16 * MIB, 1);
  const target = bench.region(bench.engine(), 16 * MIB);
  const reading = target.engine.batchRead(
    Array.from({ length: 64 }, (_, i) => request(sourceOf(server), i * 256 * KIB, target, i * 256 * KIB, 256 * KIB)),
  );
  const startedMs = performance.now();
  await Promise.all([target.engine.close(), server.engine.close()]);
  const results = await reading;
  t.true(performance.now() - startedMs < CLOSE_MAX_MS);
  t.true(results.includes(false));
  t.true(await staysUntouched(target.memory.bytes(), { byte: UNTOUCHED, forMs: WATCH_MS }));
  t.deepEqual(verbsObjects(), objects);
  t.is(openFiles(), files);
});

rdmaTest(`engine: the watch of these tests sees what a device writes${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), 16 * MIB, 1);
  const target = bench.region(bench.engine(), 16 * MIB);
  let isWatched = true;
  // Again and again: one read may be over before the watch begins.
  const reading = (async () => {
    const whole = request(sourceOf(server), 0, target, 0, 16 * MIB);
    let results = [true];
    while (isWatched && results[0]) results = await target.engine.batchRead([whole]);
  })();
  const isUntouched = await staysUntouched(target.memory.bytes(), { byte: UNTOUCHED, forMs: 10_000 });
  isWatched = false;
  await reading;
  t.false(isUntouched);
});
