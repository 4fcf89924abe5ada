import { getEventListeners } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import type { Network } from '../../src/base/environment/network.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import type { ReadOp } from '../../src/transport/contract/transport.js';
import type { TcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, listenAlone, until } from '../_support/support.js';
import { HELLO, onRequests, responseHeader } from '../_support/transport/raw-peer.js';
import { rerouted } from '../_support/transport/rerouted.js';
import { Valve } from '../_support/transport/valve.js';

const PAGE = 300_000;
const PAGES = 16;
const PATTERN = 0xa5;
/** Longer than a test: what ends meanwhile has not waited for it. */
const NEVER_MS = 3_600_000;
/** Bytes of a page that are under way: less than it, and more than is received at a time. */
const PART = 150_000;

const folder = mkdtempSync(join(tmpdir(), 'meshcache-abort-'));
const clusterSecretFile = join(folder, 'secret');
writeFileSync(clusterSecretFile, 'a secret of this test alone\n', { mode: 0o600 });
const authority = noCertificates === '' ? new Authority() : undefined;
test.after.always(() => {
  rmSync(folder, { recursive: true, force: true });
  authority?.remove();
});

type Secure = (env: Environment) => Environment;
const variants: [name: string, secure: Secure][] = [
  ['plain', (env) => env],
  ['secret', (env) => securedEnvironment({ clusterSecretFile }, env)],
];
if (authority !== undefined) {
  const files = authority.issue('node');
  variants.push(['TLS', (env) => securedEnvironment({ ...files, clusterSecretFile }, env)]);
}

/** A server of pages, a valve in front of it, and a reader that is connected through it. */
async function bench(t: ExecutionContext, secure: Secure, limits: Partial<TcpLimits> = {}) {
  const env = secure(systemEnvironment({ clock: patientClock, log: silentLogger }));
  const patient = {
    stallTimeoutMs: NEVER_MS,
    patienceMinMs: NEVER_MS,
    connectTimeoutMs: NEVER_MS,
    abortGraceMs: NEVER_MS,
    retryAfterMs: NEVER_MS,
  };
  const newTransport = async (network: Network, own: Partial<TcpLimits> = {}) => {
    const limits = { ...patient, ...own };
    const port = await freePort();
    const transport = await TcpTransport.create({ host: '127.0.0.1', port, env: { ...env, network }, limits });
    t.teardown(() => transport.close());
    return transport;
  };
  const newRegion = () => {
    const region = HostRegion.allocate(PAGES * PAGE);
    t.teardown(() => region.free());
    return region;
  };
  const server = await newTransport(env.network);
  const valve = await Valve.open(t, server.localEndpoint());
  const { port: from } = server.localEndpoints().tcp;
  const reader = await newTransport(rerouted(env.network, { from, to: Number(valve.endpoint.split(':')[1]) }), limits);
  const [source, target] = [newRegion(), newRegion()];
  source.bytes().set(content(7, source.length));
  const mr = server.registerMr(source.addr, source.length);
  /** Page `from` of the server into page `to`. */
  const op = (to: number, from = to, length = PAGE): ReadOp => ({
    remoteEndpoint: server.localEndpoint(),
    remoteAddr: mr.addr + BigInt(from * PAGE),
    rkey: mr.rkey,
    localAddr: target.addr + BigInt(to * PAGE),
    length,
  });
  const pageAt = (i: number, count = 1) => target.bytes(i * PAGE, count * PAGE);
  const isRead = (to: number, from = to) => Buffer.compare(pageAt(to), source.bytes(from * PAGE, PAGE)) === 0;
  const isPattern = (i: number, count = 1) => pageAt(i, count).every((byte) => byte === PATTERN);
  /** Of the first connection, and it is used by what follows. */
  const connect = async () => {
    t.deepEqual(await reader.batchRead([op(PAGES - 1)]), [true]);
    t.is(valve.connections.length, 1);
  };
  /** Waits until page `i` has begun to land, and all that the valve has let through has come. */
  const begun = async (i: number) => {
    await until(() => pageAt(i)[0] !== 0 && valve.latest.waitingBytes === 0);
    // What the system has is received within one turn; the others are for what it still has to pass on.
    for (let turns = 0; turns < 50; turns++) await systemClock.yield();
  };
  /** Lets a few bytes through each turn. */
  const trickleUntil = async (end: Promise<unknown>) => {
    let hasEnded = false;
    end.then(() => {
      hasEnded = true;
    });
    while (!hasEnded) {
      valve.latest.pass(1_000);
      await systemClock.yield();
    }
  };
  return { server, reader, source, target, valve, op, pageAt, isRead, isPattern, connect, begun, trickleUntil };
}

type Bench = Awaited<ReturnType<typeof bench>>;

/** The connection still works, and brings what it is asked for now. */
async function worksOn(t: ExecutionContext, { reader, op, isRead, valve, pageAt }: Bench): Promise<void> {
  const page = PAGES - 2;
  pageAt(page).fill(0);
  t.deepEqual(await reader.batchRead([op(page, 3)]), [true]);
  t.true(isRead(page, 3));
  t.is(valve.connections.length, 1);
  t.is(reader.stats().connections, 1);
  t.is(reader.stats().protocolErrors, 0);
}

for (const [name, secure] of variants) {
  test(`tcp abort (${name}): before the call nothing is asked for`, async (t) => {
    const b = await bench(t, secure);
    const signal = AbortSignal.abort();
    t.deepEqual(await b.reader.batchRead([b.op(0), b.op(1)], undefined, signal), [false, false]);
    t.is(b.valve.connections.length, 0);
    t.is(b.reader.stats().failedOps, 2);
    await t.throwsAsync(b.reader.batchRead([{ ...b.op(0), localAddr: 0n }], undefined, signal), {
      code: 'ERR_ARGUMENT',
    });
  });

  test(`tcp abort (${name}): what waits for its turn ends at once and is never sent`, async (t) => {
    const b = await bench(t, secure, { inFlightMaxCount: 1 });
    await b.connect();
    b.valve.latest.shut();
    const first = b.reader.batchRead([b.op(0)]);
    const abort = new AbortController();
    const second = b.reader.batchRead([b.op(1)], undefined, abort.signal);
    const third = b.reader.batchRead([b.op(2)]);
    await until(() => b.valve.latest.heldBytes > PAGE);
    abort.abort();
    t.deepEqual(await second, [false]);
    b.pageAt(1).fill(PATTERN);
    b.valve.latest.pass(Number.POSITIVE_INFINITY);
    t.deepEqual(await Promise.all([first, third]), [[true], [true]]);
    t.true(b.isRead(0) && b.isRead(2) && b.isPattern(1));
    t.is(b.server.stats().servedOps, 3);
    await worksOn(t, b);
  });

  test(`tcp abort (${name}): what waits for its answer ends at once, and the answer is dropped`, async (t) => {
    const b = await bench(t, secure);
    await b.connect();
    b.valve.latest.shut();
    const abort = new AbortController();
    const first = b.reader.batchRead([b.op(0), b.op(1)], undefined, abort.signal);
    const other = b.reader.batchRead([b.op(2)]);
    const second = b.reader.batchRead([b.op(3), b.op(4, 4, 100)], undefined, abort.signal);
    await until(() => b.valve.latest.heldBytes > 4 * PAGE);
    abort.abort();
    t.deepEqual(await Promise.all([first, second]), [
      [false, false],
      [false, false],
    ]);
    for (const page of [0, 1, 3, 4]) b.pageAt(page).fill(PATTERN);
    b.valve.latest.pass(Number.POSITIVE_INFINITY);
    t.deepEqual(await other, [true]);
    t.true(b.isRead(2));
    await worksOn(t, b);
    for (const page of [0, 1, 3, 4]) t.true(b.isPattern(page), `page ${page}`);
    t.is(b.reader.stats().failedOps, 4);
    t.is(getEventListeners(abort.signal, 'abort').length, 0);
  });

  test(`tcp abort (${name}): in the middle of a page, it ends with the next bytes, and the rest is dropped`, async (t) => {
    const b = await bench(t, secure);
    await b.connect();
    b.valve.latest.shut();
    const abort = new AbortController();
    const reading = b.reader.batchRead([b.op(0), b.op(1)], undefined, abort.signal);
    const other = b.reader.batchRead([b.op(2)]);
    await until(() => b.valve.latest.heldBytes > 3 * PAGE);
    b.valve.latest.pass(PART);
    await b.begun(0);
    abort.abort();
    const ended = reading.then((results) => {
      b.pageAt(0, 2).fill(PATTERN);
      return results;
    });
    await b.trickleUntil(ended);
    t.true(b.valve.latest.heldBytes > PAGE, 'it has not waited for the page');
    t.deepEqual(await ended, [false, false]);
    b.valve.latest.pass(Number.POSITIVE_INFINITY);
    t.deepEqual(await other, [true]);
    t.true(b.isRead(2));
    await worksOn(t, b);
    t.true(b.isPattern(0, 2));
  });

  test(`tcp abort (${name}): what has been read by then is`, async (t) => {
    const b = await bench(t, secure);
    await b.connect();
    b.valve.latest.shut();
    const abort = new AbortController();
    const reading = b.reader.batchRead([b.op(0), b.op(1), b.op(2)], undefined, abort.signal);
    await until(() => b.valve.latest.heldBytes > 3 * PAGE);
    b.valve.latest.pass(PAGE + PART);
    await b.begun(1);
    abort.abort();
    await b.trickleUntil(reading);
    t.deepEqual(await reading, [true, false, false]);
    t.true(b.isRead(0));
    b.pageAt(1, 2).fill(PATTERN);
    b.valve.latest.pass(Number.POSITIVE_INFINITY);
    await worksOn(t, b);
    t.true(b.isPattern(1, 2));
  });

  test(`tcp abort (${name}): of a peer that has stalled in the middle of a page, the connection is closed, and others get theirs over a new one`, async (t) => {
    const b = await bench(t, secure, { abortGraceMs: 50, inFlightMaxCount: 2 });
    await b.connect();
    const stalled = b.valve.latest;
    stalled.shut();
    const abort = new AbortController();
    const reading = b.reader.batchRead([b.op(0), b.op(1)], undefined, abort.signal);
    // One is sent, and one is queued.
    const others = [b.reader.batchRead([b.op(2)]), b.reader.batchRead([b.op(3)])];
    await until(() => stalled.heldBytes > 3 * PAGE);
    stalled.pass(PART);
    await b.begun(0);
    abort.abort();
    t.deepEqual(await reading, [false, false]);
    b.pageAt(0, 2).fill(PATTERN);
    t.true(b.reader.isReachable(b.server.localEndpoint()));
    stalled.pass(Number.POSITIVE_INFINITY);
    t.deepEqual(await Promise.all(others), [[true], [true]]);
    t.true(b.isRead(2) && b.isRead(3));
    t.is(b.valve.connections.length, 2);
    await until(() => stalled.isClosed);
    t.true(b.isPattern(0, 2));
    t.is(b.reader.stats().failedOps, 2);
  });

  test(`tcp abort (${name}): random batches are aborted at random times, and no page changes after its batch has ended`, async (t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const upTo = (limit: number): number => random.u32() % limit;
    for (const abortGraceMs of [NEVER_MS, 1]) {
      const b = await bench(t, secure, { abortGraceMs, requestTargetBytes: PAGE, inFlightMaxCount: 8 });
      let isOver = false;
      const trickling = (async () => {
        b.valve.budgetBytes = 10_000;
        while (!isOver) {
          for (const connection of b.valve.connections) connection.pass(upTo(4) === 0 ? 0 : upTo(60_000));
          // Now and then it stalls for longer than the shorter grace.
          for (let turns = upTo(20) === 0 ? 500 : upTo(4); turns >= 0; turns--) await systemClock.yield();
        }
        // What is made from now on gets everything, too: the last abort may have closed a connection.
        b.valve.budgetBytes = Number.POSITIVE_INFINITY;
        for (const connection of b.valve.connections) connection.pass(Number.POSITIVE_INFINITY);
      })();
      let wrong = 0;
      let [readOps, abortedOps] = [0, 0];
      // Each has a page of memory of its own, which it reads into again and again.
      const readers = Array.from({ length: PAGES - 2 }, async (_, page) => {
        for (let round = 0; round < 6; round++) {
          const opBytes = [100, 5_000, 40_000, PAGE][upTo(4)] as number;
          const count = opBytes === PAGE ? 1 : 1 + upTo(Math.min(Math.floor(PAGE / opBytes), 40));
          b.pageAt(page).fill(0);
          const ops = Array.from({ length: count }, (_, i): ReadOp => {
            const from = upTo(b.source.length - opBytes);
            const bytes = b.source.bytes(from, opBytes);
            return {
              ...b.op(page),
              remoteAddr: Number(b.op(0).remoteAddr) + from,
              localAddr: Number(b.op(page).localAddr) + i * opBytes,
              length: opBytes,
              ...(upTo(2) === 0 ? { checksum: crc32(bytes) } : {}),
            };
          });
          const abort = new AbortController();
          let hasEnded = false;
          const reading = b.reader.batchRead(ops, undefined, abort.signal).then((results) => {
            hasEnded = true;
            results.forEach((isRead, i) => {
              const { remoteAddr } = ops[i] as ReadOp;
              const wanted = b.source.bytes(Number(remoteAddr) - Number(b.op(0).remoteAddr), opBytes);
              const bytes = b.pageAt(page).subarray(i * opBytes, (i + 1) * opBytes);
              if (!isRead) abortedOps++;
              else if (Buffer.compare(bytes, wanted) === 0) readOps++;
              else wrong++;
            });
            b.pageAt(page).fill(PATTERN);
          });
          if (upTo(3) > 0) {
            for (let turns = upTo(60); turns > 0 && !hasEnded; turns--) await systemClock.yield();
            abort.abort();
          }
          await reading;
          for (let turns = upTo(20); turns > 0; turns--) await systemClock.yield();
          if (!b.isPattern(page)) wrong++;
          t.is(getEventListeners(abort.signal, 'abort').length, 0);
        }
      });
      await Promise.all(readers);
      isOver = true;
      await trickling;
      // What was sent and aborted has come when this has.
      t.deepEqual(await b.reader.batchRead([b.op(PAGES - 1)]), [true]);
      t.true(b.isRead(PAGES - 1));
      for (let page = 0; page < PAGES - 2; page++) t.true(b.isPattern(page), `page ${page}`);
      t.is(wrong, 0);
      t.log(`${readOps} read, ${abortedOps} aborted, ${b.valve.connections.length} connections`);
      t.true(readOps > 0 && abortedOps > 0);
      if (abortGraceMs === NEVER_MS) t.is(b.valve.connections.length, 1);
      t.is(b.reader.stats().protocolErrors, 0);
    }
  });
}

if (authority !== undefined) {
  const files = authority.issue('server');
  // Cause: a socket under TLS hands out all that it has decrypted, although it is destroyed meanwhile.
  test('tcp abort: when the transport is closed as a read ends, the next one, whose bytes came with it over TLS, writes nothing any more', async (t) => {
    const env = securedEnvironment(files, systemEnvironment({ clock: patientClock, log: silentLogger }));
    const limits = {
      stallTimeoutMs: NEVER_MS,
      patienceMinMs: NEVER_MS,
      connectTimeoutMs: NEVER_MS,
      requestTargetBytes: 1,
    };
    const reader = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env, limits });
    t.teardown(() => reader.close());
    const target = HostRegion.allocate(2 * PAGE);
    t.teardown(() => target.free());
    const answers: Buffer[] = [];
    const [cert, key] = [readFileSync(files.tlsCertFile), readFileSync(files.tlsKeyFile)];
    const server = tls.createServer({ cert, key, minVersion: 'TLSv1.3' }, (socket) => {
      t.teardown(() => socket.destroy());
      socket.on('error', () => {});
      socket.write(HELLO);
      onRequests(socket, (id, opCount, payloadBytes) => {
        answers.push(responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes, 7));
        if (answers.length === 4) socket.write(Buffer.concat(answers));
      });
    });
    t.teardown(() => server.close());
    const port = await listenAlone(server);
    const op = (to: number, length: number): ReadOp => ({
      remoteEndpoint: `127.0.0.1:${port}`,
      remoteAddr: 2n ** 47n,
      rkey: 5,
      localAddr: target.addr + BigInt(to),
      length,
    });
    const small = reader.batchRead([op(0, 100)]);
    const large = reader.batchRead([op(PAGE, PAGE)]);
    const filled = large.then(() => target.bytes(PAGE, PAGE).fill(PATTERN));
    t.deepEqual(await small, [true]);
    const closed = reader.close();
    t.deepEqual(await large, [false]);
    await Promise.all([filled, closed]);
    t.true(target.bytes(PAGE, PAGE).every((byte) => byte === PATTERN));
  });
}
