import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { seededRandom, shuffled } from '../../src/base/environment/random.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import type { Mr, ReadOp } from '../../src/transport/contract/transport.js';
import { tcpThreadsOf } from '../../src/transport/create-transport.js';
import { type TcpLimits, tcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { NO_CHECKSUM, ReadBatch, ReadRequest } from '../../src/transport/tcp/reading/read-request.js';
import { Readers } from '../../src/transport/tcp/reading/readers.js';
import { MovedConnections, ServingLoads } from '../../src/transport/tcp/serving/moved-connections.js';
import { registrationOf } from '../../src/transport/tcp/serving/registrations.js';
import { ServingThreads } from '../../src/transport/tcp/serving/serving-threads.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, listenAlone, PATIENCE_MS, until } from '../_support/support.js';
import { HELLO, RawReader, RESPONSE_BYTES, requestFrame, responseHeader } from '../_support/transport/raw-peer.js';
import { unless } from '../_support/unless.js';

const PAGE_BYTES = 16 * 1024;
const { addon, reason } = loadNative();
const withAddon = unless(addon === null ? reason : '');
const serially = unless(addon === null ? reason : '', test.serial);
/** Threads have clocks of their own, and each must wait for a processor. */
const PATIENT = { patienceMinMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS, stallTimeoutMs: PATIENCE_MS } as const;
/** Every read goes to the reading threads. */
const ALL = { ...PATIENT, threadedMinBytes: 0 } as const;

async function newTransport(
  t: ExecutionContext,
  { threads, env = newEnvironment(), limits = ALL }: TransportOptions,
): Promise<TcpTransport> {
  const transport = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env, threads, limits });
  t.teardown(() => transport.close());
  return transport;
}

interface TransportOptions {
  readonly threads: number;
  readonly env?: Environment;
  readonly limits?: Partial<TcpLimits>;
}

function newEnvironment(): Environment {
  return systemEnvironment({ clock: patientClock, log: silentLogger });
}

function newRegion(t: ExecutionContext, length: number): HostRegion {
  const region = HostRegion.allocate(length);
  t.teardown(() => region.free());
  return region;
}

/** A read with its checksum of each page of `source` into the same place of `target`. */
function readsOf(transport: TcpTransport, mr: Mr, source: HostRegion, target: HostRegion): ReadOp[] {
  return Array.from({ length: source.length / PAGE_BYTES }, (_, page) => ({
    remoteEndpoint: transport.localEndpoint(),
    remoteAddr: mr.addr + BigInt(page * PAGE_BYTES),
    rkey: mr.rkey,
    localAddr: target.addr + BigInt(page * PAGE_BYTES),
    length: PAGE_BYTES,
    checksum: crc32(source.bytes(page * PAGE_BYTES, PAGE_BYTES)),
  }));
}

test('tcp threads: peers with other numbers of threads read each other', async (t) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const transports = await Promise.all([1, 2, 5].map((threads) => newTransport(t, { threads })));
  const source = newRegion(t, 64 * PAGE_BYTES);
  source.bytes().set(content(seed, source.length));
  for (const server of transports) {
    const mr = server.registerMr(source.addr, source.length);
    for (const reader of transports) {
      const target = newRegion(t, source.length);
      const ops = shuffled(readsOf(server, mr, source, target), random);
      const damaged = random.u32() % ops.length;
      ops[damaged] = { ...(ops[damaged] as ReadOp), checksum: 1 };
      t.deepEqual(
        await reader.batchRead(ops),
        ops.map((_, at) => at !== damaged),
      );
      t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
    }
  }
  for (const transport of transports) {
    const { readOps, checksumFailures } = transport.stats();
    t.deepEqual([readOps, checksumFailures], [63 * 3, 3]);
  }
});

test('tcp threads: pages arrive while the calling thread is blocked', async (t) => {
  const server = await newTransport(t, { threads: 2 });
  const reader = await newTransport(t, { threads: 2 });
  const [source, target] = [newRegion(t, 64 * PAGE_BYTES), newRegion(t, 64 * PAGE_BYTES)];
  source.bytes().fill(7);
  const ops = readsOf(server, server.registerMr(source.addr, source.length), source, target);
  const read = reader.batchRead(ops);
  const clock = new Int32Array(new SharedArrayBuffer(4));
  const endMs = performance.now() + PATIENCE_MS;
  // Not by Buffer.compare, which may look twice at a byte that is being received, and find the same after a difference.
  const hasArrived = (): boolean => target.bytes().every((byte) => byte === 7);
  while (!hasArrived() && performance.now() < endMs) Atomics.wait(clock, 0, 0, 1);
  t.true(hasArrived(), 'before this thread has had a turn');
  t.true((await read).every(Boolean));
});

test('tcp threads: small batches, and memory of one thread, are read by the calling thread', async (t) => {
  const server = await newTransport(t, { threads: 2 });
  const reader = await newTransport(t, { threads: 3, limits: { ...PATIENT, threadedMinBytes: 8 * PAGE_BYTES } });
  const [source, target] = [newRegion(t, 64 * PAGE_BYTES), newRegion(t, 64 * PAGE_BYTES)];
  const ops = readsOf(server, server.registerMr(source.addr, source.length), source, target);
  t.true((await reader.batchRead(ops.slice(0, 7))).every(Boolean));
  t.is(reader.stats().connections, 1, 'that of the calling thread');
  const own = HostRegion.wrap(new Uint8Array(8 * PAGE_BYTES));
  t.teardown(() => own.free());
  const unshared = ops.slice(0, 8).map((op, page) => ({ ...op, localAddr: own.addr + BigInt(page * PAGE_BYTES) }));
  t.true((await reader.batchRead(unshared)).every(Boolean));
  t.is(reader.stats().connections, 1);
  t.true((await reader.batchRead(ops)).every(Boolean));
  t.is(reader.stats().connections, 4);
});

test('tcp threads: a peer that is not reached is known to all threads, and found again', async (t) => {
  const reader = await newTransport(t, { threads: 3, limits: { ...ALL, retryAfterMs: 1, retryMaxMs: 10 } });
  const port = await freePort();
  const [source, target] = [newRegion(t, 4 * PAGE_BYTES), newRegion(t, 4 * PAGE_BYTES)];
  const remoteEndpoint = `127.0.0.1:${port}`;
  const dead = Array.from({ length: 4 }, (_, page): ReadOp => {
    const localAddr = target.addr + BigInt(page * PAGE_BYTES);
    return { remoteEndpoint, remoteAddr: source.addr, rkey: 1, localAddr, length: PAGE_BYTES };
  });
  t.deepEqual(await reader.batchRead(dead), [false, false, false, false]);
  t.false(reader.isReachable(remoteEndpoint));
  t.deepEqual([...reader.unreachable()], [remoteEndpoint]);
  const back = await TcpTransport.create({ host: '127.0.0.1', port, env: newEnvironment(), threads: 2 });
  t.teardown(() => back.close());
  const mr = back.registerMr(source.addr, source.length);
  await until(async () => {
    const results = await reader.batchRead(dead.map((op) => ({ ...op, rkey: mr.rkey })));
    return results.every(Boolean);
  });
  await until(() => reader.isReachable(remoteEndpoint));
  t.is(reader.unreachable().size, 0);
});

test('tcp threads: a reading thread that fails ends its own reads, and is replaced', async (t) => {
  const counts: string[] = [];
  const env = systemEnvironment({
    clock: patientClock,
    log: silentLogger,
    metrics: { ...noMetrics, count: (name) => counts.push(name) },
  });
  const server = await newTransport(t, { threads: 1 });
  const [source, target] = [newRegion(t, 2 * PAGE_BYTES), newRegion(t, 2 * PAGE_BYTES)];
  source.bytes().fill(9);
  const { rkey } = server.registerMr(source.addr, source.length);
  const readers = new Readers({ threads: 2, limits: tcpLimits({ ...ALL, servingRestartDelayMs: 1 }), env });
  t.teardown(() => readers.close());
  const newRequest = (batch: ReadBatch, page: number, segment: Uint8Array): ReadRequest => {
    const request = new ReadRequest(batch);
    const remoteAddr = source.start + page * PAGE_BYTES;
    request.beginOp({ index: page, rkey, remoteAddr, length: PAGE_BYTES, checksum: NO_CHECKSUM, stamp: 0 });
    request.addPiece(segment, page * PAGE_BYTES, PAGE_BYTES);
    request.endOp();
    return request;
  };
  const read = (segments: readonly Uint8Array[]): Promise<boolean[]> => {
    const batch = new ReadBatch(2);
    const requests = segments.map((segment, page) => newRequest(batch, page, segment));
    readers.submit(server.localEndpoint(), requests);
    return batch.done;
  };
  // A thread finds out that this is no memory when it is to receive into it.
  const broken = { buffer: new SharedArrayBuffer(1) } as unknown as Uint8Array;
  t.deepEqual(await read([target.bytes(), broken]), [true, false]);
  await until(() => counts.length > 0);
  t.deepEqual(counts, ['meshcache_transport_reading_restarts_total']);
  t.deepEqual(await read([target.bytes(), target.bytes()]), [true, true], 'by the thread that is left');
  await until(async () => {
    await read([target.bytes(), target.bytes()]);
    return readers.total('connections') === 2;
  });
  readers.verify();
  t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
});

/** Serving threads with memory to serve, and with a registration that makes the thread fail which is to send it. */
async function serveWithThreads(t: ExecutionContext, threads: number) {
  const records: string[] = [];
  const env = systemEnvironment({ log: { log: (_level, message) => records.push(message) } });
  const region = newRegion(t, PAGE_BYTES);
  region.bytes().fill(5);
  const limits = tcpLimits({ servingRestartDelayMs: 1 });
  const serving = await ServingThreads.start({ host: '127.0.0.1', port: await freePort(), limits, env, threads });
  t.teardown(() => serving.close());
  serving.register(registrationOf(region, 1, region.start, PAGE_BYTES));
  const segments = [undefined as unknown as Uint8Array];
  serving.register({ ...registrationOf(region, 2, region.start, PAGE_BYTES), segments });
  const connect = async (): Promise<RawReader> => {
    const reader = await RawReader.connect(t, `127.0.0.1:${serving.port}`);
    reader.send(HELLO);
    await reader.receive(HELLO.length);
    return reader;
  };
  const requestOf = (rkey: number): Buffer => requestFrame(7, [{ rkey, addr: region.addr, length: PAGE_BYTES }]);
  /** Reads the memory over a connection that has not been used for anything else. */
  const assertServes = async (reader: RawReader): Promise<void> => {
    reader.send(requestOf(1));
    const answer = await reader.receive(HELLO.length + RESPONSE_BYTES + PAGE_BYTES);
    const expected = Buffer.concat([HELLO, responseHeader(7, 1, { payloadBytes: PAGE_BYTES }), region.bytes()]);
    t.is(Buffer.compare(answer, expected), 0);
  };
  return { serving, records, connect, assertServes, fail: (reader: RawReader) => reader.send(requestOf(2)) };
}

withAddon('tcp threads: a serving thread that fails ends its own connections only, and is replaced', async (t) => {
  const { serving, records, connect, assertServes, fail } = await serveWithThreads(t, 3);
  const readers = [await connect(), await connect(), await connect()] as const;
  t.is(serving.total('connections'), 3);
  // One after the other, each connection has gone to another thread: the second to one that does not accept.
  fail(readers[1]);
  await readers[1].closed();
  await assertServes(readers[0]);
  await assertServes(readers[2]);
  t.true(serving.isServing);
  await until(() => records.includes('serving thread restarted'));
  await until(() => serving.total('connections') === 2);
  const another = await connect();
  await assertServes(another);
  t.false(readers[0].socket.destroyed || readers[2].socket.destroyed);
  // The connections of all others outlive the thread that accepts, too.
  fail(readers[0]);
  await readers[0].closed();
  await until(() => records.filter((message) => message === 'serving thread restarted').length === 2);
  await assertServes(await connect());
  t.is(serving.total('connections'), 3);
  t.false(readers[2].socket.destroyed || another.socket.destroyed);
});

withAddon('tcp threads: many connections that come at once are spread, and each is served', async (t) => {
  const { serving, connect, assertServes } = await serveWithThreads(t, 4);
  const readers = await Promise.all(Array.from({ length: 16 }, connect));
  await Promise.all(readers.map(assertServes));
  t.is(serving.total('connections'), 16);
  for (const reader of readers) reader.socket.destroy();
  await until(() => serving.total('connections') === 0);
  t.is(serving.total('refusedConnections'), 0);
  t.is(serving.total('protocolErrors'), 0);
});

withAddon('tcp threads: a connection that no thread has taken ends with the thread that accepted it', async (t) => {
  const loads = new ServingLoads(2);
  loads.set(0, true);
  loads.set(1, true);
  loads.add(0, 1);
  const deaf = { post: () => {}, onMessage: () => {}, receive: () => undefined, close: () => {}, onClose: () => {} };
  const moved = new MovedConnections({
    index: 0,
    loads,
    channel: deaf,
    clock: patientClock,
    timeoutMs: PATIENCE_MS,
    onConnection: () => t.fail(),
    onProved: () => t.fail(),
  });
  const kept: boolean[] = [];
  const server = net.createServer((socket) => kept.push(moved.keeps(socket, false)));
  t.teardown(() => server.close());
  const reader = net.connect(await listenAlone(server), '127.0.0.1').resume();
  const closed = once(reader, 'close');
  await until(() => kept.length === 1);
  t.deepEqual(kept, [false]);
  t.false(reader.destroyed);
  const closedAt = performance.now();
  moved.close();
  await closed;
  t.true(performance.now() - closedAt < PATIENCE_MS / 2, 'not only when nobody has taken it in time');
});

serially('tcp threads: a new connection goes to the thread that has lost its own', async (t) => {
  const { serving, connect, assertServes, fail } = await serveWithThreads(t, 3);
  const readers: RawReader[] = [];
  for (let i = 0; i < 6; i++) readers.push(await connect());
  // Those of the second thread.
  for (const at of [1, 4]) readers[at]?.socket.destroy();
  await until(() => serving.total('connections') === 4);
  const [first, second] = [await connect(), await connect()];
  fail(first);
  await second.closed();
  for (const at of [0, 2, 3, 5]) await assertServes(readers[at] as RawReader);
});

serially('tcp threads: readers that reset their connections at once leave no descriptor behind', async (t) => {
  const { serving, connect, assertServes } = await serveWithThreads(t, 3);
  // The loop of a thread opens a descriptor of its own for the first connection.
  const readers = [await connect(), await connect(), await connect()];
  for (const reader of readers) await assertServes(reader);
  for (const { socket } of readers) socket.destroy();
  await until(() => serving.total('connections') === 0);
  const descriptors = (): number => readdirSync('/proc/self/fd').length;
  const before = descriptors();
  for (let i = 0; i < 30; i++) {
    const socket = net.connect({ host: '127.0.0.1', port: serving.port });
    socket.on('error', () => {});
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.resetAndDestroy();
  }
  await until(() => descriptors() === before);
  await until(() => serving.total('connections') === 0);
  await assertServes(await connect());
});

const withCertificates = unless(noCertificates);

withCertificates(
  'tcp threads: threads authenticate themselves, with TLS and without, also by renewed secrets',
  async (t) => {
    const authority = new Authority();
    t.teardown(() => authority.remove());
    const secret = { clusterSecretFile: authority.write('secret', 'a secret of this test') };
    for (const security of [secret, { ...authority.issue('node'), ...secret }]) {
      const environment = (): Environment => securedEnvironment(security, newEnvironment());
      const [env, readerEnv] = [environment(), environment()];
      const server = await newTransport(t, { threads: 3, env });
      const reader = await newTransport(t, { threads: 3, env: readerEnv });
      const [source, target] = [newRegion(t, 64 * PAGE_BYTES), newRegion(t, 64 * PAGE_BYTES)];
      source.bytes().set(content(1, source.length));
      const ops = readsOf(server, server.registerMr(source.addr, source.length), source, target);
      t.true((await reader.batchRead(ops)).every(Boolean));
      t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
      for (const { secrets } of [env, readerEnv]) secrets?.renew(['another secret of this test']);
      const later = await newTransport(t, { threads: 2, env: readerEnv });
      t.true((await later.batchRead(ops)).every(Boolean));
      const stranger = await newTransport(t, { threads: 2 });
      t.deepEqual(await stranger.batchRead(ops.slice(0, 2)), [false, false]);
    }
  },
);

test('tcp threads: as many as suit the processors', (t) => {
  const on = (parallelism: number, canCopy = true): number => {
    const env = newEnvironment();
    return tcpThreadsOf({ host: { ...env.host, parallelism }, threads: { ...env.threads, canCopy } });
  };
  t.deepEqual(
    [1, 2, 7, 8, 15, 16, 128].map((parallelism) => on(parallelism)),
    [1, 1, 1, 2, 2, 4, 4],
  );
  t.is(on(16, false), 1, 'where there are no threads');
});
