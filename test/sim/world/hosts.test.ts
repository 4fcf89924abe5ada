import test from 'ava';
import { type Connection, listenAt } from '../../../src/base/environment/network.js';
import type { SimProcess } from '../../../src/sim/world/sim-process.js';
import { World } from '../../../src/sim/world/world.js';

const PORT = 1000;

/** Has each connection say what it received, after `hello`. */
async function listen({ environment }: SimProcess): Promise<Connection[]> {
  const connections: Connection[] = [];
  const server = environment.network.createServer({}, (connection) => {
    connections.push(connection);
    connection.on('error', () => {});
    connection.on('data', (bytes) => connection.write(bytes));
  });
  await listenAt(server, { host: '0.0.0.0', port: PORT }, () => {});
  return connections;
}

function connect({ environment: { network } }: SimProcess, host: string, keepAliveInitialDelay?: number) {
  const seen: string[] = [];
  const connection = network.connect({
    host,
    port: PORT,
    ...(keepAliveInitialDelay && { keepAlive: true, keepAliveInitialDelay }),
  });
  connection.on('connect', () => seen.push('connect'));
  connection.on('data', (bytes) => seen.push(bytes.toString()));
  connection.on('end', () => seen.push('end'));
  connection.on('error', ({ code }) => seen.push(String(code)));
  connection.on('close', () => seen.push('close'));
  return { connection, seen };
}

/** Counts up in virtual time for as long as it runs, and by promises alone. */
function count({ clock }: SimProcess): { value: number } {
  const counter = { value: 0 };
  (async () => {
    for (;;) {
      await new Promise<void>((resolve) => clock.after(10, resolve));
      await clock.yield();
      counter.value++;
    }
  })();
  return counter;
}

async function twoHosts() {
  const world = new World({ seed: 1 });
  const [a, b] = ['a', 'b'].map((name) => world.host({ name }).start()) as [SimProcess, SimProcess];
  const connections = await world.complete(listen(b));
  const client = connect(a, 'b');
  await world.runFor(10);
  return { world, a, b, connections, ...client };
}

test.serial('hosts: nothing of a killed process runs again, and its peers see the end', async (t) => {
  const { world, b, seen } = await twoHosts();
  const counter = count(b);
  await world.runFor(1000);
  const { value } = counter;
  t.true(value > 90);
  const ran: string[] = [];
  b.clock.after(100, () => ran.push('timer'));
  b.clock.yield().then(() => ran.push('yield'));
  b.files.readdir('/').then(() => ran.push('files'));
  const late = b.environment.network.connect({ host: 'a', port: PORT });
  late.on('error', () => ran.push('error'));
  late.on('close', () => ran.push('close'));
  b.kill();
  b.clock.after(1, () => ran.push('timer of the dead'));
  await world.runFor(1000);
  t.is(counter.value, value);
  t.deepEqual(ran, []);
  t.deepEqual(seen, ['connect', 'end', 'close']);
  t.false(b.isAlive);
  t.deepEqual(b.counts, { ...b.counts, connections: 0, servers: 0, openFiles: 0, memoryBytes: 0 });
  t.is(await world.run(), 'idle');
});

test.serial('hosts: a process may end itself in the middle of something', async (t) => {
  const world = new World({ seed: 1 });
  const process = world.host({ name: 'a' }).start();
  let reached = '';
  process.clock.after(1, () => {
    void (async () => {
      process.kill();
      reached = 'killed';
      await process.clock.yield();
      reached = 'lived on';
    })();
  });
  await world.run();
  t.is(reached, 'killed');
});

test.serial('hosts: bytes that a killed process had not read make it a reset', async (t) => {
  const { world, b, connections, connection, seen } = await twoHosts();
  connections[0]?.pause();
  connection.write(Buffer.from('unread'));
  await world.runFor(10);
  b.kill();
  await world.runFor(10);
  t.deepEqual(seen, ['connect', 'ECONNRESET', 'close']);
});

test.serial('hosts: a crash is silence, and a restarted host answers with a reset', async (t) => {
  const { world, b, connection, seen } = await twoHosts();
  b.host.crash();
  connection.write(Buffer.from('hello?'));
  await world.runFor(60_000);
  t.deepEqual(seen, ['connect']);
  b.host.restart();
  await world.runFor(60_000);
  t.deepEqual(seen, ['connect', 'ECONNRESET', 'close']);
});

test.serial('hosts: connecting to a host that is down waits, and fails after two minutes', async (t) => {
  const { world, a, b } = await twoHosts();
  b.host.crash();
  const { seen } = connect(a, 'b');
  await world.runFor(120_000);
  t.deepEqual(seen, []);
  await world.runFor(20_000);
  t.deepEqual(seen, ['ETIMEDOUT', 'close']);
  const again = connect(a, 'b');
  await world.runFor(100);
  b.host.restart();
  await world.complete(listen(b.host.start()));
  await world.runFor(2_000);
  t.deepEqual(again.seen, ['connect']);
});

test.serial('hosts: a peer that is kept alive notices silence, an idle one without does not', async (t) => {
  const { world, a, b, seen } = await twoHosts();
  const watchful = connect(a, 'b', 30_000);
  await world.runFor(10);
  b.host.crash();
  await world.runFor(29_000);
  t.deepEqual(watchful.seen, ['connect']);
  await world.runFor(15_000);
  t.deepEqual(watchful.seen, ['connect', 'ETIMEDOUT', 'close']);
  t.deepEqual(seen, ['connect']);
});

test.serial('hosts: a frozen host does nothing, and time has passed for it afterwards', async (t) => {
  const { world, b, connection, seen } = await twoHosts();
  const counter = count(b);
  const beforeMs = b.clock.nowMs();
  b.host.freeze();
  connection.write(Buffer.from('hello'));
  await world.runFor(5_000);
  t.is(counter.value, 0);
  t.deepEqual(seen, ['connect']);
  b.host.thaw();
  await world.runFor(10_000);
  t.true(counter.value > 900);
  t.true(b.clock.nowMs() - beforeMs >= 15_000);
  // The bytes were lost, and sent again.
  t.deepEqual(seen, ['connect', 'hello']);
});

test.serial('hosts: a clock of a host that slept stands still, and its wall clock is right afterwards', async (t) => {
  const world = new World({ seed: 1, wallMs: 1e12 });
  const { host, clock } = world.host({ name: 'a' }).start();
  const [beforeMs, wallMs] = [clock.nowMs(), clock.wallMs()];
  host.freeze({ isAsleep: true });
  await world.runFor(5_000);
  t.is(clock.nowMs(), beforeMs);
  host.thaw();
  t.is(clock.wallMs(), wallMs + 5_000);
  await world.runFor(1_000);
  t.is(clock.nowMs(), beforeMs + 1_000);
});

test.serial('hosts: for a stopped process the kernel goes on', async (t) => {
  const { world, a, b, connection, seen } = await twoHosts();
  b.stop();
  connection.write(Buffer.from('hello'));
  const other = connect(a, 'b');
  await world.runFor(5_000);
  t.deepEqual([seen, other.seen], [['connect'], ['connect']]);
  t.is(connection.writableLength, 0);
  b.continue();
  await world.runFor(10);
  t.deepEqual(seen, ['connect', 'hello']);
  other.connection.write(Buffer.from('too'));
  await world.runFor(10);
  t.deepEqual(other.seen, ['connect', 'too']);
});

test.serial('hosts: a slow program does one thing after the other', async (t) => {
  const { world, b } = await twoHosts();
  b.host.setEventCost(10);
  const times: number[] = [];
  for (let i = 0; i < 5; i++) b.clock.after(1, () => times.push(world.nowMs));
  await world.runFor(1_000);
  t.deepEqual(
    times.map((ms) => Math.round(ms - (times[0] as number))),
    [0, 10, 20, 30, 40],
  );
});

test.serial('hosts: clocks drift, jump and stop', async (t) => {
  const world = new World({ seed: 1, wallMs: 1e12 });
  const { host, clock } = world.host({ name: 'a' }).start();
  const startMs = clock.nowMs();
  host.time.setDrift(100_000);
  let firedAtMs = 0;
  clock.after(1_100, () => (firedAtMs = world.nowMs));
  await world.runFor(1_000);
  t.is(Math.round(firedAtMs), 1_000);
  t.is(Math.round(clock.nowMs() - startMs), 1_100);
  t.is(clock.wallMs(), 1e12 + 1_100);
  host.time.setDrift(0);
  host.time.jump(-5_000);
  t.is(clock.wallMs(), 1e12 - 3_900);
  host.time.stopWall();
  await world.runFor(1_000);
  t.is(clock.wallMs(), 1e12 - 3_900);
  host.time.startWall();
  t.is(clock.wallMs(), 1e12 - 2_900);
  t.is(Math.round(clock.nowMs() - startMs), 2_100);
});

test.serial('hosts: several processes of a host share its ports and its loopback', async (t) => {
  const world = new World({ seed: 1 });
  const host = world.host({ name: 'a' });
  const [first, second] = [host.start('rank-0'), host.start('rank-1')];
  await world.complete(listen(first));
  await t.throwsAsync(world.complete(listen(second)), { code: 'EADDRINUSE' });
  const { connection, seen } = connect(second, '127.0.0.1');
  connection.write(Buffer.from('hello'));
  await world.runFor(10);
  t.deepEqual(seen, ['connect', 'hello']);
  first.kill();
  await world.complete(listen(second));
  t.is(host.processes.size, 1);
});

test.serial('hosts: memory for pages is counted, ends, and comes back with the death of its process', (t) => {
  const world = new World({ seed: 1 });
  const host = world.host({ name: 'a', memoryBytes: 1000 });
  const process = host.start();
  const seen = process.environment.host;
  const memory = seen.allocate(600);
  t.is(seen.freeMemoryBytes(), 400);
  t.throws(() => seen.allocate(500), { instanceOf: RangeError });
  memory?.release();
  t.is(seen.freeMemoryBytes(), 1000);
  seen.allocate(700);
  t.is(seen.residentBytes(), 700);
  process.kill();
  t.is(host.freeMemoryBytes, 1000);
  host.limitMemory(10);
  t.throws(() => host.start().environment.host.allocate(11));
});

test.serial('hosts: what one draws changes nothing for another, and each start draws anew', (t) => {
  const draw = (usesOther: boolean): number[] => {
    const world = new World({ seed: 5 });
    const [a, b] = [world.host({ name: 'a' }), world.host({ name: 'b' })];
    const other = a.start();
    if (usesOther) other.random.bytes(100);
    return [b.start().random.u32(), b.start().random.u32()];
  };
  t.deepEqual(draw(true), draw(false));
  t.not(draw(true)[0], draw(true)[1]);
});

test.serial('hosts: a host boots its program, again after each restart', async (t) => {
  const world = new World({ seed: 1 });
  const starts: string[] = [];
  const host = world.host({ name: 'a', boot: ({ id }) => void starts.push(`${id}@${world.nowMs}`) });
  host.boot();
  await world.runFor(100);
  host.restart();
  await world.runFor(100);
  t.deepEqual(starts, ['1@0', '2@100']);
  const failing = world.host({ name: 'b', boot: () => Promise.reject(new Error('planted')) });
  failing.boot();
  await t.throwsAsync(world.runFor(100), { message: 'planted' });
});

test.serial('hosts: log records are kept with the virtual time, the last ones', async (t) => {
  const world = new World({ seed: 1, logMaxLines: 2, logLevel: 'warn' });
  const { environment, clock } = world.host({ name: 'a' }).start();
  for (const [i, level] of (['warn', 'info', 'error', 'warn'] as const).entries()) {
    clock.after(10 * (i + 1), () => environment.log.log(level, `record ${i}`, { i }));
  }
  await world.run();
  t.deepEqual(
    world.journal.lines.map(({ atMs, message, process }) => [Math.round(atMs), message, process]),
    [
      [30, 'record 2', 'a'],
      [40, 'record 3', 'a'],
    ],
  );
});
