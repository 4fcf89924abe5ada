import { isAll, isSame, tiled } from '../_support/rdma/bytes.js';
import { EngineBench, request, sourceOf } from '../_support/rdma/engine-bench.js';
import { rdmaTest, suffix } from '../_support/rdma/soft-devices.js';

const KIB = 1024;
const MIB = 1024 * KIB;
const UNTOUCHED = 0xee;

rdmaTest(`engine: bytes are right for every size and offset${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), 64 * MIB + 64, 1);
  const target = bench.region(bench.engine(), 64 * MIB + 64);
  const sizes = [
    1,
    2,
    3,
    7,
    63,
    1023,
    1024,
    1025,
    4095,
    4096,
    4097,
    65_535,
    65_537,
    MIB + 3,
    4 * MIB + 1,
    17 * MIB + 1,
  ];
  for (const size of [...sizes, 64 * MIB]) {
    const [from, to] = [size % 61, size % 53];
    target.memory.bytes(0, Math.min(size + 64, target.memory.length)).fill(UNTOUCHED);
    const results = await target.engine.batchRead([request(sourceOf(server), from, target, to, size)]);
    t.deepEqual(results, [true], `${size} bytes`);
    t.true(isSame(target.memory.bytes(to, size), server.memory.bytes(from, size)), `${size} bytes`);
    t.true(isAll(target.memory.bytes(0, to), UNTOUCHED), `before ${size} bytes`);
    t.true(isAll(target.memory.bytes(to + size, 8), UNTOUCHED), `after ${size} bytes`);
  }
  const stats = target.engine.stats();
  t.is(stats.readOps, sizes.length + 1);
  t.is(stats.failedOps, 0);
  t.is(stats.lostConnections, 0);
  t.true(stats.postedRequests > stats.readOps, 'long reads are split');
});

rdmaTest(`engine: what is not registered is refused, each operation for itself${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const server = bench.region(bench.engine(), 64 * KIB, 1);
  const target = bench.region(bench.engine(), 64 * KIB);
  const source = sourceOf(server);
  target.memory.bytes().fill(UNTOUCHED);
  const good = (slot: number) => request(source, slot * 4096, target, slot * 4096, 4096);
  const results = await target.engine.batchRead([
    good(0),
    { ...good(1), rkey: (source.rkey ^ 1) >>> 0 },
    good(2),
    request(source, 64 * KIB - 4095, target, 3 * 4096, 4096),
    request(source, -1, target, 4 * 4096, 4096),
    good(5),
    request(source, 64 * KIB, target, 6 * 4096, 4096),
    { ...good(7), remoteAddr: 2n ** 64n - 4096n },
    good(8),
  ]);
  t.deepEqual(results, [true, false, true, false, false, true, false, false, true]);
  for (const [slot, isRead] of results.entries()) {
    const bytes = target.memory.bytes(slot * 4096, 4096);
    if (isRead) t.true(isSame(bytes, server.memory.bytes(slot * 4096, 4096)), `slot ${slot}`);
    else t.true(isAll(bytes, UNTOUCHED), `slot ${slot}`);
  }
  t.is(target.engine.stats().lostConnections, 0, 'none of it has cost a connection');
  await t.throwsAsync(target.engine.batchRead([good(0), request(source, 0, target, 64 * KIB - 10, 11)]), {
    code: 'ERR_ARGUMENT',
    message: /request 1: 11 bytes .* not within memory that is registered/,
  });
});

rdmaTest(`engine: several peers in one batch, each with its own bytes${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const servers = [1, 2, 3, 4].map((seed) => bench.region(bench.engine(), 256 * KIB, seed));
  const target = bench.region(bench.engine(), 4 * MIB);
  const requests = Array.from({ length: 256 }, (_, i) => {
    const server = servers[i % servers.length] as (typeof servers)[0];
    return request(sourceOf(server), (i * 997) % (240 * KIB), target, i * 16 * KIB, 16 * KIB - (i % 13));
  });
  const results = await Promise.all([
    target.engine.batchRead(requests.slice(0, 100)),
    target.engine.batchRead(requests.slice(100)),
  ]);
  t.deepEqual(
    results.flat(),
    requests.map(() => true),
  );
  for (const [i, { length }] of requests.entries()) {
    const from = servers[i % servers.length]?.memory.bytes((i * 997) % (240 * KIB), length) as Uint8Array;
    t.true(isSame(target.memory.bytes(i * 16 * KIB, length), from), `operation ${i}`);
  }
});

rdmaTest(`engine: the owner's processor has no part in a read${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const peer = await bench.process({ length: MIB, seed: 5 });
  const target = bench.region(bench.engine(), MIB);
  t.deepEqual(await target.engine.batchRead([request(sourceOf(peer), 0, target, 0, 1)]), [true]);
  peer.signal('SIGSTOP');
  t.deepEqual(await target.engine.batchRead([request(sourceOf(peer), 0, target, 0, MIB)]), [true]);
  t.true(isSame(target.memory.bytes(), tiled(5, MIB)));
});

rdmaTest(`engine: memory that is deregistered is not read any more, the rest is${suffix}`, async (t) => {
  const bench = new EngineBench(t);
  const owner = bench.engine();
  const [kept, gone] = [bench.region(owner, 4 * MIB, 1), bench.region(owner, 4 * MIB, 2)];
  const target = bench.region(bench.engine(), 8 * MIB);
  const requests = Array.from({ length: 64 }, (_, i) => {
    const server = i % 2 === 0 ? kept : gone;
    return request(sourceOf(server), Math.floor(i / 2) * 128 * KIB, target, i * 128 * KIB, 128 * KIB);
  });
  const [results] = await Promise.all([target.engine.batchRead(requests), owner.deregisterMr(gone.handle)]);
  // What the owner used the memory for afterwards must not have been read.
  gone.memory.bytes().fill(UNTOUCHED);
  for (const [i, isRead] of results.entries()) {
    const from = Math.floor(i / 2) * 128 * KIB;
    if (i % 2 === 0) t.true(isRead, `operation ${i}, of memory that stays`);
    if (!isRead) continue;
    t.true(
      isSame(
        target.memory.bytes(i * 128 * KIB, 128 * KIB),
        tiled(1 + (i % 2), 4 * MIB).subarray(from, from + 128 * KIB),
      ),
    );
  }
  const again = await target.engine.batchRead([
    requests[0] as (typeof requests)[0],
    requests[1] as (typeof requests)[0],
  ]);
  t.deepEqual(again, [true, false]);
  const anew = { ...gone, handle: owner.registerMr(gone.memory.addr, gone.memory.length) };
  t.not(anew.handle.rkey, gone.handle.rkey);
  t.deepEqual(await target.engine.batchRead([request(sourceOf(anew), 0, target, 0, MIB)]), [true]);
  t.true(isAll(target.memory.bytes(0, MIB), UNTOUCHED));
});
