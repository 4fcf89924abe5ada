import test from 'ava';
import { type Connection, type ListenOptions, listenAt } from '../../../src/base/environment/network.js';
import { type FaultKind, scheduleFaults } from '../../../src/sim/world/faults.js';
import { below, forkedRandom } from '../../../src/sim/world/kernel/seeds.js';
import type { NetworkShape } from '../../../src/sim/world/network/link.js';
import type { SimConnection } from '../../../src/sim/world/network/sim-connection.js';
import type { SimHost } from '../../../src/sim/world/sim-host.js';
import { World } from '../../../src/sim/world/world.js';
import { randomFaults } from '../../_support/sim/world/random-faults.js';
import { content } from '../../_support/support.js';

const PORT = 1000;
const EXACT: Partial<NetworkShape> = {
  latencyMs: 10,
  jitter: 0,
  tailProbability: 0,
  splitProbability: 0,
  bytesPerS: 1e6,
};

interface Received {
  bytes: number;
  atMs: number;
  firstAtMs: number;
  events: number;
}

/** A world with hosts that listen, and what arrives at each. */
async function begin(shape: Partial<NetworkShape> = {}, names = ['a', 'b'], options: ListenOptions = {}) {
  const world = new World({ seed: 1, network: { ...EXACT, ...shape } });
  const received = new Map<string, Received>();
  const servers = new Map<string, Connection[]>();
  for (const name of names) {
    const { network } = world.host({ name }).environment();
    const accepted: Connection[] = [];
    const seen = { bytes: 0, atMs: 0, firstAtMs: 0, events: 0 };
    received.set(name, seen);
    servers.set(name, accepted);
    const server = network.createServer(options, (connection) => {
      accepted.push(connection);
      connection.on('error', () => {});
      connection.on('data', ({ length }) => note(seen, length, world.nowMs));
    });
    await world.complete(listenAt(server, { host: '0.0.0.0', port: PORT }, () => {}));
  }
  const host = (name: string): SimHost => world.hosts.get(name) as SimHost;
  const connect = async (from: string, to: string): Promise<Connection & { seen: Received; codes: string[] }> => {
    const { network } = host(from).environment();
    const seen = { bytes: 0, atMs: 0, firstAtMs: 0, events: 0 };
    const codes: string[] = [];
    const connection = network.connect({ host: to, port: PORT });
    connection.on('data', ({ length }) => note(seen, length, world.nowMs));
    connection.on('error', ({ code }) => codes.push(String(code)));
    connection.on('close', () => codes.push('close'));
    await world.run({
      until: () => connection.remotePort !== undefined && isOpen(connection),
      untilMs: world.nowMs + 1000,
    });
    return Object.assign(connection, { seen, codes });
  };
  const isOpen = (connection: Connection): boolean => (connection as { incoming?: unknown }).incoming !== undefined;
  return {
    world,
    host,
    connect,
    received: (name: string) => received.get(name) as Received,
    accepted: (name: string) => servers.get(name) as Connection[],
  };
}

function note(seen: Received, length: number, nowMs: number): void {
  if (seen.bytes === 0) seen.firstAtMs = nowMs;
  seen.bytes += length;
  seen.atMs = nowMs;
  seen.events++;
}

test.serial('links: a message takes its latency and its length', async (t) => {
  const { world, connect, received } = await begin();
  const connection = await connect('a', 'b');
  const atMs = world.nowMs;
  connection.write(new Uint8Array(100_000));
  await world.runFor(1000);
  // 100 ms to send at 1 MB a second, and 10 on the way; headers of 66 bytes.
  t.is(Math.round(received('b').atMs - atMs), 110);
  t.is(received('b').events, 1);
});

test.serial('links: a host sends and receives no more than its bandwidth, on all connections together', async (t) => {
  const { world, connect, received } = await begin({}, ['a', 'b', 'c']);
  const [toB, toC, fromC] = [await connect('a', 'b'), await connect('a', 'c'), await connect('c', 'b')];
  let atMs = world.nowMs;
  toB.write(new Uint8Array(100_000));
  toC.write(new Uint8Array(100_000));
  await world.runFor(1000);
  t.is(Math.round(Math.max(received('b').atMs, received('c').atMs) - atMs), 210);
  atMs = world.nowMs;
  toB.write(new Uint8Array(100_000));
  fromC.write(new Uint8Array(100_000));
  await world.runFor(1000);
  t.is(Math.round(received('b').atMs - atMs), 210);
});

test.serial('links: what is long takes few events, and the window bounds what is under way', async (t) => {
  const { world, connect, received, accepted } = await begin({
    bytesPerS: 1e9,
    windowBytes: 2 ** 22,
    chunkBytes: 2 ** 20,
  });
  const connection = await connect('a', 'b');
  await world.runFor(50);
  const before = world.eventsCount;
  connection.write(new Uint8Array(16 * 2 ** 20));
  t.is(connection.writableLength, 12 * 2 ** 20);
  await world.runFor(1000);
  t.is(received('b').bytes, 16 * 2 ** 20);
  t.true(world.eventsCount - before <= 40, `${world.eventsCount - before}`);
  accepted('b')[0]?.pause();
  connection.write(new Uint8Array(16 * 2 ** 20));
  await world.runFor(10_000);
  t.is(connection.writableLength, 12 * 2 ** 20);
});

test.serial('links: latency has a tail', async (t) => {
  const { world, connect, received } = await begin({ jitter: 0.2, tailProbability: 0.05, tailFactor: 10 });
  const connection = await connect('a', 'b');
  const delays: number[] = [];
  for (let i = 0; i < 1000; i++) {
    const atMs = world.nowMs;
    const { bytes } = received('b');
    connection.write(new Uint8Array(10));
    await world.run({ until: () => received('b').bytes > bytes });
    delays.push(world.nowMs - atMs);
  }
  delays.sort((a, b) => a - b);
  t.true((delays[0] as number) >= 10);
  t.true((delays[900] as number) <= 12.1);
  t.true((delays[990] as number) >= 100);
  t.true((delays[999] as number) <= 512, 'what takes longer is a fault');
});

test.serial('links: nothing arrives behind the byte at which a connection is cut', async (t) => {
  // Cause: of each message that was under way behind it, as many bytes arrived again, and a reader took a page for
  // damaged.
  const { world, connect, received } = await begin({ chunkBytes: 1_000 });
  const connection = await connect('a', 'b');
  (connection as unknown as SimConnection).outgoing?.cutAfter(2_500);
  connection.write(new Uint8Array(10_000));
  await world.runFor(1_000);
  t.is(received('b').bytes, 2_500);
});

test.serial('links: a message that is faster than the one before it waits for that, and is not lost', async (t) => {
  const { world, connect, received } = await begin({ jitter: 5 });
  const connection = await connect('a', 'b');
  const atMs = world.nowMs;
  for (let i = 0; i < 100; i++) {
    connection.write(new Uint8Array(10));
    await world.runFor(1);
  }
  await world.run({ until: () => received('b').bytes === 1_000 });
  t.true(world.nowMs - atMs < 170);
});

test.serial('links: a partition holds everything back, and what was lost is sent again', async (t) => {
  const { world, host, connect, received } = await begin();
  const connection = await connect('a', 'b');
  const sides = [new Set([host('a').network]), new Set([host('b').network])] as const;
  const [from, to] = sides;
  const heal = world.fabric.addRule({ from, to, trouble: { isBlocked: true } });
  for (let i = 0; i < 10; i++) {
    connection.write(new Uint8Array(100));
    await world.runFor(500);
  }
  t.is(received('b').bytes, 0);
  heal();
  await world.runFor(10_000);
  t.is(received('b').bytes, 1000);
  t.deepEqual(connection.codes, []);
});

test.serial('links: a partition of one direction leaves the other alone', async (t) => {
  const { world, host, connect, received, accepted } = await begin({ windowBytes: 1000 });
  const connection = await connect('a', 'b');
  await world.runFor(50);
  const rule = { from: new Set([host('b').network]), to: new Set([host('a').network]), trouble: { isBlocked: true } };
  const heal = world.fabric.addRule(rule);
  connection.on('drain', () => t.fail('a drain that nobody waits for'));
  t.true(connection.write(new Uint8Array(5000)));
  accepted('b')[0]?.write(new Uint8Array(10));
  await world.runFor(5_000);
  // What the window lets through, as nothing is acknowledged.
  t.is(received('b').bytes, 1000);
  t.is(connection.seen.bytes, 0);
  t.is(connection.writableLength, 4000);
  heal();
  await world.runFor(60_000);
  t.is(received('b').bytes, 5000);
  t.is(connection.seen.bytes, 10);
});

test.serial('links: a connection without a way is given up after a quarter of an hour', async (t) => {
  const { world, host, connect } = await begin();
  const connection = await connect('a', 'b');
  world.fabric.addRule({
    from: new Set([host('a').network]),
    to: new Set([host('b').network]),
    trouble: { isBlocked: true },
  });
  connection.write(new Uint8Array(10));
  await world.runFor(900_000);
  t.deepEqual(connection.codes, []);
  await world.runFor(300_000);
  t.deepEqual(connection.codes, ['ETIMEDOUT', 'close']);
});

test.serial('links: loss is delay', async (t) => {
  const { world, host, connect, received } = await begin();
  const connection = await connect('a', 'b');
  world.fabric.addRule({
    from: new Set([host('a').network]),
    to: new Set([host('b').network]),
    trouble: { lossProbability: 1 },
  });
  const atMs = world.nowMs;
  connection.write(new Uint8Array(10));
  await world.runFor(1000);
  t.is(Math.round(received('b').atMs - atMs), 230);
});

test.serial('links: a link has less bandwidth, or more latency, while that is so', async (t) => {
  const { world, host, connect, received } = await begin();
  const connection = await connect('a', 'b');
  const sides = { from: new Set([host('a').network]), to: new Set([host('b').network]) };
  const end = world.fabric.addRule({ ...sides, trouble: { bytesPerS: 1e5, addedLatencyMs: 7, latencyFactor: 2 } });
  let atMs = world.nowMs;
  connection.write(new Uint8Array(10_000));
  await world.runFor(1000);
  t.is(Math.round(received('b').atMs - atMs), 101 + 27);
  end();
  atMs = world.nowMs;
  connection.write(new Uint8Array(10_000));
  await world.runFor(1000);
  t.is(Math.round(received('b').atMs - atMs), 20);
});

test.serial('links: bytes of the data plane count as those that they stand for', async (t) => {
  const { world, host, connect, accepted } = await begin({ bytesScale: 100 }, ['a', 'b'], { plane: 'data' });
  const connection = await connect('a', 'b');
  await world.runFor(50);
  const atMs = world.nowMs;
  connection.write(new Uint8Array(1000));
  accepted('b')[0]?.write(new Uint8Array(1000));
  accepted('b')[0]?.write(new Uint8Array(150));
  await world.runFor(1000);
  // What readers send is no page, and neither is a header.
  t.is(host('a').network.trafficOf('data').sentBytes, 1000);
  t.is(host('b').network.trafficOf('data').sentBytes, 100_150);
  t.is(host('a').network.trafficOf('data').receivedBytes, 100_150);
  t.is(host('b').network.trafficOf('data').sentMessages, 1);
  t.is(Math.round(connection.seen.atMs - atMs), 110);
});

test.serial('links: received bytes may come in two pieces', async (t) => {
  const { world, connect, received } = await begin({ splitProbability: 1 });
  const connection = await connect('a', 'b');
  connection.write(new Uint8Array(100));
  await world.runFor(50);
  t.is(received('b').bytes, 100);
  t.is(received('b').events, 2);
});

test.serial('links: only whoever is connected to a host that has ended hears of it', async (t) => {
  const { world, host, connect, accepted } = await begin({}, ['a', 'b', 'c']);
  const [toB, toC] = [await connect('a', 'b'), await connect('a', 'c')];
  host('b').killAll();
  await world.runFor(100);
  t.deepEqual(toB.codes, ['close']);
  t.deepEqual(toC.codes, []);
  t.is(host('b').network.connections.size, 0);
  t.is(accepted('c').length, 1);
});

test.serial('links: whatever happens to messages, bytes arrive once and in order, or not at all', async (t) => {
  for (let seed = 1; seed <= 8; seed++) {
    const random = forkedRandom(seed, 'order');
    const { world, host, connect, accepted } = await begin({
      jitter: 5,
      tailProbability: 0.2,
      tailFactor: 20,
      bytesPerS: 1e7,
    });
    const connection = await connect('a', 'b');
    await world.run({ until: () => accepted('b').length > 0 });
    const pieces: Buffer[] = [];
    accepted('b')[0]?.on('data', (bytes) => pieces.push(Buffer.from(bytes)));
    const kinds: FaultKind[] = [
      'partition',
      'mute',
      'deaf',
      'loss',
      'stall',
      'freeze',
      'stop',
      'slow',
      'throttle',
      'delay',
    ];
    const shape = {
      hosts: ['a', 'b'],
      fromMs: world.nowMs,
      untilMs: world.nowMs + 20_000,
      count: 10,
      maxDurationMs: 2_000,
      kinds,
    };
    scheduleFaults(world, randomFaults(random, shape));
    const sent = content(seed, 200_000);
    for (let at = 0; at < sent.length; ) {
      const length = Math.min(sent.length - at, 1 + below(random, 3_000));
      connection.write(sent.subarray(at, at + length));
      at += length;
      await world.runFor(below(random, 300));
    }
    await world.runFor(300_000);
    t.true(Buffer.concat(pieces).equals(sent), `seed ${seed}: ${Buffer.concat(pieces).length} bytes`);
    t.deepEqual(connection.codes, []);
    t.false(host('a').isFrozen);
  }
});
