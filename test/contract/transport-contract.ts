import { getEventListeners } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { ExecutionContext, TestFn } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../../src/base/environment/network.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { Gone } from '../../src/base/gone.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { readStamp, STAMP_BYTES } from '../../src/memory/page-stamp.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { type Mr, type ReadOp, type Transport, tcpEndpointText } from '../../src/transport/contract/transport.js';
import type { DataProtocol } from '../../src/types.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, until } from '../_support/support.js';
import { type PeerProcess, peerByte } from './peer-process.js';

const KIB = 1024;
const MIB = 1024 * KIB;
const RETRY_AFTER_MS = 60_000;
const STALL_TIMEOUT_MS = 1_000;

export interface TransportCase {
  readonly protocol: DataProtocol;
  /** Address of its transports. */
  readonly host: string;
  /** Undefined: it reaches its own process only, and what needs another one is left out. */
  readonly peerProcess?: (length: number) => Promise<PeerProcess>;
  /** Whether the owner knows what is read: not where its processor has no part in it. */
  readonly countsServed: boolean;
  /** Bytes that it moves in a second at least, by which the work of some tests is measured out. */
  readonly bytesPerS: number;
  /** Whether threads with clocks of their own read, so that a test cannot turn their clocks. */
  readonly hasOwnClocks?: boolean;
  /** A transport on `host`; `port` 0: a free one. */
  create(options: {
    port?: number;
    env: Environment;
    retryAfterMs: number;
    stallTimeoutMs: number;
  }): Promise<Transport>;
}

/** One case's transports and regions, all closed when the test ends. */
class Bench {
  /** Added to the clock of all transports made from now on. */
  skewMs = 0;
  readonly #env: Environment;

  constructor(
    readonly t: ExecutionContext,
    readonly subject: TransportCase,
  ) {
    const clock = { ...patientClock, nowMs: () => patientClock.nowMs() + this.skewMs };
    this.#env = systemEnvironment({ clock, log: silentLogger });
  }

  async transport(port = 0): Promise<Transport> {
    const transport = await this.subject.create({
      port,
      env: this.#env,
      retryAfterMs: RETRY_AFTER_MS,
      stallTimeoutMs: STALL_TIMEOUT_MS,
    });
    this.t.teardown(() => transport.close());
    return transport;
  }

  region(length: number, seed?: number): HostRegion {
    const region = HostRegion.allocate(length);
    if (seed !== undefined) fill(region.bytes(), seed);
    this.t.teardown(() => region.free());
    return region;
  }

  /** A transport that serves one region of `length` bytes that follow from `seed`. */
  async server(length: number, seed = 1): Promise<{ transport: Transport; region: HostRegion; mr: Mr }> {
    const transport = await this.transport();
    const region = this.region(length, seed);
    return { transport, region, mr: transport.registerMr(region.addr, length) };
  }

  async peerProcess(length: number): Promise<PeerProcess> {
    if (this.subject.peerProcess === undefined) throw new Error('it reaches no other process');
    const peer = await this.subject.peerProcess(length);
    this.t.teardown(() => peer.kill());
    return peer;
  }
}

type Server = Awaited<ReturnType<Bench['server']>>;

/** Reads `length` bytes at `from` of the server's region into `region` at `to`. */
function readOp(server: Server, from: number, region: HostRegion, to: number, length: number): ReadOp {
  return {
    remoteEndpoint: server.transport.localEndpoint(),
    remoteAddr: server.mr.addr + BigInt(from),
    rkey: server.mr.rkey,
    localAddr: region.addr + BigInt(to),
    length,
  };
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** The promises that every transport keeps; registers one test for each. */
export function transportContract(test: TestFn, subject: TransportCase): void {
  const name = subject.protocol;
  const define = (title: string, body: (bench: Bench, t: ExecutionContext) => Promise<void>): void => {
    // One after the other: each needs the thread for itself to be quick, and deadlines are real ones here.
    test.serial(`${name} transport: ${title}`, (t) => body(new Bench(t, subject), t));
  };
  const defineWithProcess: typeof define = (title, body) => {
    if (subject.peerProcess !== undefined) define(title, body);
  };

  define('bytes are right for every size and offset', async (bench, t) => {
    const server = await bench.server(64 * MIB + 64);
    const reader = await bench.transport();
    const target = bench.region(64 * MIB + 64);
    const sizes = [1, 2, 7, 4095, 4096, 4097, 16_383, 16_384, 16_385, 65_537, 262_143, 262_145, MIB + 3, 17 * MIB + 1];
    for (const size of [...sizes, 64 * MIB]) {
      const [from, to] = [size % 61, size % 53];
      target.bytes(0, size + 64).fill(0xee);
      t.deepEqual(await reader.batchRead([readOp(server, from, target, to, size)]), [true], `${size} bytes`);
      t.true(sameBytes(target.bytes(to, size), server.region.bytes(from, size)), `${size} bytes`);
      t.true(
        target.bytes(0, to).every((byte) => byte === 0xee),
        `before ${size} bytes`,
      );
      t.true(
        target.bytes(to + size, 8).every((byte) => byte === 0xee),
        `after ${size} bytes`,
      );
    }
    t.is(reader.stats().readOps, sizes.length + 1);
    t.is(reader.stats().failedOps, 0);
  });

  define('random batches in flight together land where they belong, and nothing else is touched', async (bench, t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const upTo = (limit: number): number => random.u32() % limit;
    const servers = [await bench.server(4 * MIB, 1), await bench.server(4 * MIB, 2), await bench.server(4 * MIB, 3)];
    const reader = await bench.transport();
    const target = bench.region(48 * MIB);
    const expected = new Uint8Array(target.length).fill(0xee);
    target.bytes().set(expected);
    const batches: { ops: ReadOp[]; results: boolean[] }[] = [];
    let next = 0;
    for (let b = 0; b < 24; b++) {
      const largest = [64, 5_000, 40_000, 300_000][b % 4] as number;
      const batch = { ops: [] as ReadOp[], results: [] as boolean[] };
      const opCount = upTo(Math.min(300, 2_000_000 / largest)) + 1;
      for (let i = 0; i < opCount; i++) {
        const server = servers[upTo(servers.length)] as Server;
        const length = upTo(largest);
        const from = upTo(server.region.length - length);
        const pieces: { addr: bigint; length: number }[] = [];
        const start = next;
        for (let rest = length, parts = upTo(3); rest > 0; parts--) {
          const take = parts > 0 ? upTo(rest) : rest;
          pieces.push({ addr: target.addr + BigInt(next), length: take });
          next += take + (upTo(2) === 0 ? 0 : upTo(50));
          rest -= take;
        }
        const bytes = server.region.bytes(from, length);
        const kind = upTo(10);
        const op: ReadOp = {
          ...readOp(server, from, target, start, length),
          rkey: kind === 0 ? (server.mr.rkey ^ 1) >>> 0 : server.mr.rkey,
          checksum: kind < 4 ? undefined : kind === 4 ? (crc32(bytes) ^ 1) >>> 0 : crc32(bytes),
          ...(pieces.length > 1 ? { scatter: pieces } : {}),
        };
        const lands = kind !== 0;
        if (lands) {
          let at = 0;
          for (const piece of pieces) {
            expected.set(bytes.subarray(at, at + piece.length), Number(piece.addr - target.addr));
            at += piece.length;
          }
        }
        batch.ops.push(op);
        batch.results.push(kind !== 0 && kind !== 4);
      }
      batches.push(batch);
    }
    t.true(next <= target.length);
    const results = await Promise.all(batches.map((batch) => reader.batchRead(batch.ops)));
    for (const [b, result] of results.entries()) t.deepEqual(result, batches[b]?.results, `batch ${b}`);
    t.true(sameBytes(target.bytes(), expected));
  });

  define('a batch of thousands of operations keeps their order', async (bench, t) => {
    const server = await bench.server(MIB);
    const reader = await bench.transport();
    const target = bench.region(MIB);
    const ops = Array.from({ length: 5000 }, (_, i) => {
      const op = readOp(server, (4999 - i) * 200, target, i * 200, 200);
      return i % 3 === 0 ? { ...op, rkey: (op.rkey ^ 0x5555) >>> 0 } : op;
    });
    const results = await reader.batchRead(ops);
    t.true(results.every((isRead, i) => isRead === (i % 3 !== 0)));
    for (let i = 0; i < ops.length; i++) {
      if (i % 3 === 0) t.true(target.bytes(i * 200, 200).every((byte) => byte === 0));
      else if (!sameBytes(target.bytes(i * 200, 200), server.region.bytes((4999 - i) * 200, 200))) t.fail(`${i}`);
    }
    if (!subject.countsServed) return;
    t.is(server.transport.stats().servedOps, results.filter(Boolean).length);
    t.is(server.transport.stats().refusedOps, results.filter((isRead) => !isRead).length);
  });

  define('a region of several segments is read across their boundary', async (bench, t) => {
    const boundary = 2 ** 31;
    const server = await bench.server(4 * KIB);
    const big = bench.region(boundary + 64 * KIB);
    // What is registered with a device is locked: no more of it than is needed.
    const from = name === 'rdma' ? boundary - 32 * KIB : 0;
    const mr = server.transport.registerMr(big.addr + BigInt(from), big.length - from);
    const reader = await bench.transport();
    big.bytes(boundary - 5_000, 5_000).set(content(5, 5_000));
    big.bytes(boundary, 5_000).set(content(6, 5_000));
    const target = bench.region(10_000);
    const op = readOp({ ...server, mr }, boundary - 5_000 - from, target, 0, 10_000);
    t.deepEqual(await reader.batchRead([op]), [true]);
    t.true(sameBytes(target.bytes(), Buffer.concat([content(5, 5_000), content(6, 5_000)])));

    const back = { ...readOp(server, 0, big, 0, 4 * KIB), localAddr: big.addr + BigInt(boundary - 1_000) };
    t.deepEqual(await reader.batchRead([back]), [true]);
    t.true(sameBytes(Buffer.concat(big.views(boundary - 1_000, 4 * KIB)), server.region.bytes()));
  });

  define('an empty batch has no results', async (bench, t) => {
    const reader = await bench.transport();
    t.deepEqual(await reader.batchRead([]), []);
  });

  define('a read of no bytes is true only with the peer’s consent', async (bench, t) => {
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const target = bench.region(KIB);
    const op = readOp(server, KIB, target, 0, 0);
    t.deepEqual(await reader.batchRead([op, { ...op, rkey: (op.rkey ^ 1) >>> 0 }, op]), [true, false, true]);
    t.deepEqual(
      await reader.batchRead([
        { ...op, checksum: 0 },
        { ...op, checksum: 1 },
      ]),
      [true, false],
    );
  });

  define('what the peer has not registered is refused, to the byte', async (bench, t) => {
    const server = await bench.server(64 * KIB);
    const inner = server.transport.registerMr(server.region.addr + 1_000n, 2_000);
    const reader = await bench.transport();
    const target = bench.region(64 * KIB);
    const good = readOp(server, 0, target, 0, 64 * KIB);
    const within = { ...good, rkey: inner.rkey, remoteAddr: inner.addr, length: 2_000 };
    const ops: ReadOp[] = [
      within,
      { ...within, remoteAddr: inner.addr - 1n },
      { ...within, remoteAddr: inner.addr + 1n },
      { ...within, length: 2_001 },
      { ...good, rkey: (good.rkey + 1) >>> 0 },
      { ...good, rkey: 0 },
      { ...good, remoteAddr: BigInt(good.remoteAddr) + 1n },
      { ...good, remoteAddr: 0n },
      { ...good, remoteAddr: 2n ** 64n - 1n },
      { ...good, remoteAddr: -1n },
      good,
    ];
    const results = await reader.batchRead(ops);
    t.deepEqual(
      results,
      ops.map((op) => op === within || op === good),
    );
    t.is(reader.stats().failedOps, ops.length - 2);
  });

  define('a deregistered region is refused', async (bench, t) => {
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const op = readOp(server, 0, bench.region(KIB), 0, KIB);
    t.deepEqual(await reader.batchRead([op]), [true]);
    await server.transport.deregisterMr(server.mr);
    await server.transport.deregisterMr(server.mr);
    t.deepEqual(await reader.batchRead([op]), [false]);
    const again = server.transport.registerMr(server.region.addr, KIB);
    t.not(again.rkey, server.mr.rkey);
    t.deepEqual(await reader.batchRead([op, { ...op, rkey: again.rkey }]), [false, true]);
  });

  define('a freed region is refused, though still registered', async (bench, t) => {
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const op = readOp(server, 0, bench.region(KIB), 0, KIB);
    t.deepEqual(await reader.batchRead([op]), [true]);
    server.region.free();
    t.deepEqual(await reader.batchRead([op]), [false]);
  });

  define('a region can be read by whoever learns its rkey, from the first moment', async (bench, t) => {
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const target = bench.region(KIB);
    for (let i = 0; i < 50; i++) {
      const mr = server.transport.registerMr(server.region.addr, KIB);
      t.deepEqual(await reader.batchRead([{ ...readOp(server, 0, target, 0, KIB), rkey: mr.rkey }]), [true]);
    }
  });

  define('registering memory that is not there throws', async (bench, t) => {
    const transport = await bench.transport();
    const region = bench.region(KIB);
    const wrong: [bigint, number][] = [
      [region.addr, KIB + 1],
      [region.addr - 1n, 10],
      [0n, 10],
      [region.addr, 0],
      [region.addr, -1],
      [region.addr, 1.5],
      [region.addr, Number.NaN],
    ];
    for (const [addr, length] of wrong) {
      t.throws(() => transport.registerMr(addr, length), { code: 'ERR_ARGUMENT' }, `${addr} ${length}`);
    }
    region.free();
    t.throws(() => transport.registerMr(region.addr, KIB), { code: 'ERR_ARGUMENT' });
  });

  define('local memory that is not live throws before anything is touched', async (bench, t) => {
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const target = bench.region(KIB);
    const freed = HostRegion.allocate(KIB);
    freed.free();
    const good = readOp(server, 0, target, 0, 100);
    const half = { addr: target.addr, length: 50 };
    const wrong: ReadOp[] = [
      { ...good, localAddr: freed.addr },
      { ...good, localAddr: target.addr + BigInt(KIB - 99) },
      { ...good, localAddr: 0n },
      { ...good, length: -1 },
      { ...good, length: 0.5 },
      { ...good, length: 2 ** 40 },
      { ...good, scatter: [half] },
      { ...good, scatter: [half, { addr: freed.addr, length: 50 }] },
      { ...good, scatter: [half, { addr: target.addr, length: -1 }, { addr: target.addr, length: 51 }] },
    ];
    for (const [i, op] of wrong.entries()) {
      await t.throwsAsync(reader.batchRead([good, op]), { code: 'ERR_ARGUMENT' }, `case ${i}`);
    }
    t.deepEqual(await reader.batchRead([readOp(server, 0, target, 500, 1)]), [true]);
    t.true(target.bytes(0, 100).every((byte) => byte === 0));
    if (subject.countsServed) t.is(server.transport.stats().servedOps, 1);
  });

  define('memory of any kind can be read into', async (bench, t) => {
    const server = await bench.server(MIB);
    const reader = await bench.transport();
    for (const memory of [new ArrayBuffer(MIB), new SharedArrayBuffer(MIB), new Uint8Array(MIB + 9).subarray(9)]) {
      const region = HostRegion.wrap(memory);
      t.deepEqual(await reader.batchRead([readOp(server, 0, region, 0, MIB)]), [true]);
      t.true(sameBytes(region.bytes(), server.region.bytes()));
      region.free();
    }
  });

  define('a checksum that the bytes do not have makes the result false, and is counted', async (bench, t) => {
    const server = await bench.server(10 * MIB);
    const reader = await bench.transport();
    const target = bench.region(10 * MIB);
    const sizes = [1, 4096, 16_384, 300_000, 5 * MIB];
    const ops = sizes.map((size) => {
      const op = readOp(server, size, target, size, size);
      return { ...op, checksum: crc32(server.region.bytes(size, size)) };
    });
    t.deepEqual(await reader.batchRead(ops), [true, true, true, true, true]);
    for (const size of sizes) {
      const last = server.region.bytes(2 * size - 1, 1);
      last[0] = (last[0] as number) ^ 1;
      const wanted = ops.map((op) => op.checksum === crc32(server.region.bytes(op.length, op.length)));
      t.deepEqual(await reader.batchRead(ops), wanted, `${size}`);
      last[0] = (last[0] as number) ^ 1;
    }
    t.true(reader.stats().checksumFailures >= sizes.length);
  });

  define(
    'a stamp that the bytes do not end with makes the result false, and is no checksum failure',
    async (bench, t) => {
      const server = await bench.server(10 * MIB);
      const reader = await bench.transport();
      const target = bench.region(10 * MIB);
      const sizes = [6, 7, 4096, 16_384, 300_000, 5 * MIB];
      const stamped = sizes.map((size) => {
        const bytes = server.region.bytes(size, size);
        const op = { ...readOp(server, size, target, size, size), stamp: readStamp(bytes, size - STAMP_BYTES) };
        // The stamp comes in two pieces, one of which is a single byte.
        const addr = BigInt(op.localAddr);
        const scatter = [
          { addr, length: size - 1 },
          { addr: addr + BigInt(size - 1), length: 1 },
        ];
        return { op, verified: { ...op, scatter, checksum: crc32(bytes) } };
      });
      const all = stamped.map(() => true);
      t.deepEqual(await reader.batchRead(stamped.map(({ op }) => op)), all);
      t.deepEqual(await reader.batchRead(stamped.map(({ verified }) => verified)), all);
      for (const change of [
        (stamp: number) => (stamp % 2 === 0 ? stamp + 1 : stamp - 1),
        (stamp: number) => (stamp + 2 ** 47) % 2 ** 48,
      ]) {
        const stale = stamped.map(({ verified }) => ({ ...verified, stamp: change(verified.stamp) || 1 }));
        t.deepEqual(
          await reader.batchRead(stale),
          stale.map(() => false),
        );
      }
      t.deepEqual(
        await reader.batchRead([{ ...readOp(server, 0, target, 0, 5), stamp: 1 }]),
        [false],
        'shorter than a stamp',
      );
      t.is(reader.stats().staleOps, 2 * sizes.length + 1);
      t.is(reader.stats().checksumFailures, 0);
      await t.throwsAsync(reader.batchRead([{ ...readOp(server, 0, target, 0, 8), stamp: 2 ** 48 }]), {
        message: /stamp must be/,
      });
    },
  );

  define('what a peer has answered that it is not there is told from what has failed', async (bench, t) => {
    const server = await bench.server(MIB);
    const reader = await bench.transport();
    const target = bench.region(MIB);
    const good = readOp(server, 0, target, 0, 100);
    const [, damaged, freed, foreign] = [1, 2, 3, 4].map((part) => readOp(server, part * KIB, target, part * KIB, 100));
    const ops: ReadOp[] = [
      { ...good, checksum: crc32(server.region.bytes(0, 100)) },
      { ...(damaged as ReadOp), checksum: 1 },
      { ...(freed as ReadOp), stamp: 1 },
      { ...(foreign as ReadOp), rkey: (server.mr.rkey ^ 1) >>> 0 },
      { ...good, localAddr: target.addr + BigInt(8 * KIB), remoteEndpoint: 'nowhere' },
    ];
    const gone = new Uint8Array(ops.length);
    t.deepEqual(await reader.batchRead(ops, gone), [true, false, false, false, false]);
    t.deepEqual([...gone], [Gone.no, Gone.damaged, Gone.freed, Gone.freed, Gone.no]);
    gone.fill(0);
    const overTcp = ops.map((op) => ({
      ...op,
      remoteEndpoint: tcpEndpointText(formatEndpoint(server.transport.localEndpoints().tcp as Endpoint)),
    }));
    t.deepEqual(await reader.batchRead(overTcp, gone), [true, false, false, false, true]);
    t.deepEqual([...gone], [Gone.no, Gone.damaged, Gone.freed, Gone.freed, Gone.no]);
    await server.transport.close();
    gone.fill(0);
    t.deepEqual(await reader.batchRead(ops, gone), [false, false, false, false, false]);
    t.deepEqual([...gone], [0, 0, 0, 0, 0]);
  });

  define('what it advertises is where it can be read from, over TCP too', async (bench, t) => {
    const server = await bench.server(KIB);
    const endpoints = server.transport.localEndpoints();
    t.is(formatEndpoint(endpoints[name] as Endpoint), server.transport.localEndpoint());
    const reader = await bench.transport();
    const op = readOp(server, 0, bench.region(KIB), 0, KIB);
    const overTcp = { ...op, remoteEndpoint: tcpEndpointText(formatEndpoint(endpoints.tcp as Endpoint)) };
    const again = { ...overTcp, localAddr: bench.region(KIB).addr };
    t.deepEqual(await reader.batchRead([op, again, { ...again, rkey: (op.rkey ^ 1) >>> 0 }]), [true, true, false]);
    t.true(reader.isReachable(again.remoteEndpoint));
  });

  define('a transport reads from itself', async (bench, t) => {
    const server = await bench.server(KIB);
    const target = bench.region(KIB);
    t.deepEqual(await server.transport.batchRead([readOp(server, 0, target, 0, KIB)]), [true]);
    t.true(sameBytes(target.bytes(), server.region.bytes()));
  });

  define(
    'a peer that is not there costs its own operations only, is skipped, and is back when it is',
    async (bench, t) => {
      const server = await bench.server(KIB);
      const gone = await bench.transport();
      const port = Number(gone.localEndpoint().split(':').at(-1));
      await gone.close();
      const reader = await bench.transport();
      const target = bench.region(4 * KIB);
      const good = readOp(server, 0, target, 0, KIB);
      const dead = { ...good, remoteEndpoint: gone.localEndpoint() };
      t.true(reader.isReachable(dead.remoteEndpoint), 'nothing is known yet');
      t.deepEqual(await reader.batchRead([good, dead, good]), [true, false, true]);
      t.true(reader.isReachable(good.remoteEndpoint));
      t.false(reader.isReachable(dead.remoteEndpoint));

      const back = await bench.transport(port);
      const mr = back.registerMr(server.region.addr, KIB);
      const revived = { ...dead, rkey: mr.rkey };
      t.deepEqual(await reader.batchRead([revived]), [false], 'skipped for a while');
      if (subject.hasOwnClocks) return;
      bench.skewMs += RETRY_AFTER_MS;
      t.deepEqual(await reader.batchRead([revived]), [true]);
      t.true(reader.isReachable(revived.remoteEndpoint));
      t.deepEqual(await reader.batchRead([dead]), [false], 'its former self’s rkey is not honoured');
      t.is(reader.stats().reconnects, 1);
    },
  );

  define('what is no endpoint is a miss', async (bench, t) => {
    const reader = await bench.transport();
    const server = await bench.server(KIB);
    const op = readOp(server, 0, bench.region(KIB), 0, KIB);
    const wrong = ['', 'nowhere', `${subject.host}:0`, `${subject.host}:99999`, 'no.such.host.invalid:1', 'tcp://'];
    for (const remoteEndpoint of wrong) {
      t.deepEqual(await reader.batchRead([{ ...op, remoteEndpoint }]), [false], remoteEndpoint);
    }
    // Rejected with a TypeError once the good read was on its way: it went on writing after that.
    for (const value of [undefined, null, 7, {}]) {
      const noText = { ...op, remoteEndpoint: value as unknown as string };
      t.deepEqual(await reader.batchRead([op, noText, noText]), [true, false, false], String(value));
    }
  });

  defineWithProcess(
    'a peer killed in the middle of a read: false, and nothing is written any more',
    async (bench, t) => {
      const length = 192 * MIB;
      const peer = await bench.peerProcess(length);
      const reader = await bench.transport();
      const target = bench.region(length);
      const { endpoint: remoteEndpoint, rkey } = peer;
      const opBytes = 32 * MIB;
      const ops = Array.from({ length: length / opBytes }, (_, i) => {
        const offset = BigInt(i * opBytes);
        return {
          remoteEndpoint,
          rkey,
          remoteAddr: peer.addr + offset,
          localAddr: target.addr + offset,
          length: opBytes,
        };
      });
      const reading = reader.batchRead(ops);
      await turnsUntil(() => target.bytes(0, 1)[0] !== 0);
      await peer.kill();
      const results = await reading;
      t.false(results.at(-1));
      const snapshot = Buffer.from(target.bytes());
      for (const [i, isRead] of results.entries()) {
        if (!isRead) continue;
        for (let at = i * opBytes; at < (i + 1) * opBytes; at += 4093) {
          if (snapshot[at] !== peerByte(at)) t.fail(`byte ${at}`);
        }
      }
      const server = await bench.server(KIB);
      t.deepEqual(await reader.batchRead([readOp(server, 0, bench.region(KIB), 0, KIB)]), [true]);
      t.true(sameBytes(target.bytes(), snapshot));
    },
  );

  defineWithProcess('serving goes on while the owner’s main thread is blocked', async (bench, t) => {
    const length = Math.min(16 * MIB, subject.bytesPerS / 10);
    const peer = await bench.peerProcess(length);
    const reader = await bench.transport();
    const target = bench.region(length);
    const wake = join(mkdtempSync(join(tmpdir(), 'meshcache-peer-')), 'wake');
    t.teardown(() => rmSync(dirname(wake), { recursive: true, force: true }));
    peer.say(`block ${wake}`);
    t.is(await peer.nextLine(), 'blocking');
    for (let round = 0; round < 4; round++) {
      target.bytes().fill(0);
      const op = {
        remoteEndpoint: peer.endpoint,
        rkey: peer.rkey,
        remoteAddr: peer.addr,
        localAddr: target.addr,
        length,
      };
      t.deepEqual(await reader.batchRead([op]), [true]);
      t.is(target.bytes(length - 1, 1)[0], peerByte(length - 1));
    }
    t.deepEqual(peer.lines, [], 'it is still blocked');
    writeFileSync(wake, '');
    t.is(await peer.nextLine(), 'awake');
  });

  define('once aborted reads have ended nothing is written any more, and others go on', async (bench, t) => {
    const pageBytes = Math.min(MIB, subject.bytesPerS / 128);
    const server = await bench.server(16 * pageBytes);
    const reader = await bench.transport();
    const target = bench.region(17 * pageBytes);
    const other = readOp(server, 0, target, 16 * pageBytes, pageBytes);
    const ops = Array.from({ length: 16 }, (_, i) => readOp(server, i * pageBytes, target, i * pageBytes, pageBytes));
    t.deepEqual(await reader.batchRead([other], undefined, AbortSignal.abort()), [false]);
    t.true(target.bytes().every((byte) => byte === 0));
    for (let turns = 0; turns < 12; turns++) {
      target.bytes().fill(0);
      const abort = new AbortController();
      const reading = reader.batchRead(ops, undefined, abort.signal);
      const otherReading = reader.batchRead([other]);
      for (let turn = 0; turn < turns; turn++) await systemClock.yield();
      abort.abort();
      const results = await reading;
      results.forEach((isRead, i) => {
        const bytes = target.bytes(i * pageBytes, pageBytes);
        if (isRead)
          t.true(
            sameBytes(bytes, server.region.bytes(i * pageBytes, pageBytes)),
            `operation ${i} after ${turns} turns`,
          );
      });
      target.bytes(0, 16 * pageBytes).fill(0xee);
      t.deepEqual(await otherReading, [true]);
      t.true(sameBytes(target.bytes(16 * pageBytes, pageBytes), server.region.bytes(0, pageBytes)));
      t.deepEqual(await reader.batchRead([other]), [true]);
      t.true(
        sameBytes(target.bytes(0, 16 * pageBytes), new Uint8Array(16 * pageBytes).fill(0xee)),
        `after ${turns} turns`,
      );
      t.is(getEventListeners(abort.signal, 'abort').length, 0);
    }
    t.true(reader.isReachable(other.remoteEndpoint));
  });

  define('close ends reads in flight as misses; afterwards all reads are', async (bench, t) => {
    const server = await bench.server(64 * MIB);
    const reader = await bench.transport();
    const target = bench.region(64 * MIB);
    const ops = [readOp(server, 0, target, 0, 64 * MIB)];
    // So many that this thread, which may have to wait for a processor, closes before they are all done.
    const reading = Array.from({ length: 6 }, () => reader.batchRead(ops));
    await turnsUntil(() => target.bytes(0, 1)[0] !== 0);
    await Promise.all([reader.close(), reader.close()]);
    const results = (await Promise.all(reading)).flat();
    t.false(results.at(-1));
    const snapshot = Buffer.from(target.bytes());
    t.deepEqual(await reader.batchRead(ops), [false]);
    t.true(sameBytes(target.bytes(), snapshot));
    t.throws(() => reader.registerMr(target.addr, 1), { code: 'ERR_CLOSED' });
    await reader.close();
  });

  define('close of the serving side ends the reads of its peers as misses', async (bench, t) => {
    const server = await bench.server(64 * MIB);
    const reader = await bench.transport();
    const target = bench.region(64 * MIB);
    // The answers under way are sent to their end, several at a time where there are several threads.
    const ops = Array.from({ length: 9 }, () => readOp(server, 0, target, 0, 64 * MIB));
    const reading = reader.batchRead(ops);
    await turnsUntil(() => target.bytes(0, 1)[0] !== 0);
    await server.transport.close();
    await server.transport.deregisterMr(server.mr);
    t.false((await reading).at(-1));
  });

  test.serial(`${name} transport: close leaves nothing open`, async (t) => {
    const bench = new Bench(t, subject);
    await until(() => openResources().length === 0);
    const server = await bench.server(KIB);
    const reader = await bench.transport();
    const op = readOp(server, 0, bench.region(KIB), 0, KIB);
    t.deepEqual(await reader.batchRead([op, { ...op, remoteEndpoint: `${subject.host}:1` }]), [true, false]);
    t.true(openResources().length > 0);
    await reader.close();
    await server.transport.close();
    t.deepEqual(openResources(), []);
  });
}

/** What keeps the process alive, without the pipes to the test runner. */
function openResources(): string[] {
  return process
    .getActiveResourcesInfo()
    .filter((kind) => /TCP|Timeout|Message|Worker|Connect/i.test(kind))
    .sort();
}

/** Repeats bytes that follow from `seed`, with a period that no page has. */
function fill(bytes: Uint8Array, seed: number): void {
  const period = Math.min(bytes.length, 2 ** 20 + 13);
  bytes.set(content(seed, period));
  for (let at = period; at < bytes.length; at += period) {
    bytes.set(bytes.subarray(0, Math.min(period, bytes.length - at)), at);
  }
}

/** Lets input and output go on, turn by turn, until `condition` holds. */
async function turnsUntil(condition: () => boolean): Promise<void> {
  while (!condition()) await systemClock.yield();
}
