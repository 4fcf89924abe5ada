import net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { DISCOVERY_START_TIMEOUT_MS } from '../../src/base/limits.js';
import { DiscoveryClient } from '../../src/discovery/client.js';
import { DiscoveryServer } from '../../src/discovery/server.js';
import { encodeHello } from '../../src/rpc/frame.js';
import { RpcServer } from '../../src/rpc/server.js';
import { systemRandom } from '../../src/system/system-random.js';
import { ManualClock } from '../_support/clock.js';
import { loggedEnvironment, newMember, nodeOf, startMaster, turnUntil } from '../_support/discovery/masters.js';
import { newClient, rawConnection, testEnvironment } from '../_support/rpc/server.js';
import { simulated } from '../_support/simulated.js';
import { freePort, listenAlone, until } from '../_support/support.js';

simulated('discovery: members see each other come and go at once', async (t, world) => {
  const { environment: env } = world.process();
  const { addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'), { env });
  const b = newMember(t, addr, nodeOf('b'), { env });
  await a.client.start();
  t.is(a.ids(), 'a');
  const startedMs = world.nowMs;
  await b.client.start();
  t.is(b.ids(), 'a,b');
  await world.until(() => a.ids() === 'a,b');
  t.deepEqual(a.client.members().get('b')?.toDict(), nodeOf('b').toDict());
  await b.client.stop();
  await world.until(() => a.ids() === 'a');
  t.true(world.nowMs - startedMs < 1_500, 'well within a heartbeat interval');
  t.deepEqual(a.seen, [['a'], ['a', 'b'], ['a']]);
});

simulated('discovery: what a member says anew of itself is spread within a heartbeat interval', async (t, world) => {
  const { environment: env } = world.process();
  const { addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'), { env });
  const b = newMember(t, addr, nodeOf('b'), { env });
  await Promise.all([a.client.start(), b.client.start()]);
  await world.until(() => a.ids() === 'a,b' && b.ids() === 'a,b');
  for (const isDiskHung of [true, false]) {
    const seen = a.seen.length;
    const startedMs = world.nowMs;
    b.client.restate(nodeOf('b', { isDiskHung }));
    t.is(b.client.members().get('b')?.isDiskHung, isDiskHung);
    await world.until(() => a.client.members().get('b')?.isDiskHung === isDiskHung);
    t.true(world.nowMs - startedMs < 2_500);
    t.is(a.seen.length, seen + 1);
  }
});

test('discovery: onMembers is called for changes only', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'), { env });
  const b = newMember(t, addr, nodeOf('b'), { env });
  await Promise.all([a.client.start(), b.client.start()]);
  await turnUntil(clock, () => a.ids() === 'a,b' && b.ids() === 'a,b');
  const before = a.seen.length;
  const untilMs = clock.nowMs() + 20_000;
  await turnUntil(clock, () => clock.nowMs() >= untilMs);
  t.is(a.seen.length, before);
  t.is(a.ids(), 'a,b');
});

test('discovery: who dies without a word is dropped after the time-to-live', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { master, port, addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'), { env });
  await a.client.start();
  await newClient(t).call({ host: '127.0.0.1', port }, 'discovery.register', { node: nodeOf('dead').toDict() });
  const registeredMs = clock.nowMs();
  await turnUntil(clock, () => a.ids() === 'a,dead');
  await turnUntil(clock, () => a.ids() === 'a');
  t.true(clock.nowMs() - registeredMs >= 6_000);
  t.true(clock.nowMs() - registeredMs < 7_000);
  t.deepEqual([...master.members().keys()], ['a']);
});

test('discovery: a restarted node replaces its former self, which is told', async (t) => {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const { addr } = await startMaster(t, { env });
  const old = newMember(t, addr, nodeOf('a', { incarnation: 1 }), { env });
  const other = newMember(t, addr, nodeOf('b'), { env });
  await Promise.all([old.client.start(), other.client.start()]);
  const restarted = newMember(t, addr, nodeOf('a', { incarnation: 2, tcpPort: 9999 }), { env });
  await restarted.client.start();
  await turnUntil(clock, () => other.client.members().get('a')?.incarnation === 2);
  t.is(other.client.members().get('a')?.tcpPort, 9999);
  await turnUntil(clock, () => messages.some((message) => message.includes('same node_id')));
  const untilMs = clock.nowMs() + 10_000;
  await turnUntil(clock, () => clock.nowMs() >= untilMs);
  t.is(other.client.members().get('a')?.incarnation, 2);
  t.is(messages.filter((message) => message.includes('same node_id')).length, 1);
});

test('discovery: a master that restarts takes no live node away, and drops the dead ones when it is old enough', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const first = await startMaster(t, { env });
  const a = newMember(t, first.addr, nodeOf('a'), { env });
  const b = newMember(t, first.addr, nodeOf('b'), { env });
  const c = newMember(t, first.addr, nodeOf('c'), { env });
  await Promise.all([a.client.start(), b.client.start(), c.client.start()]);
  await turnUntil(clock, () => a.ids() === 'a,b,c' && b.ids() === 'a,b,c');
  await first.master.stop();
  await c.client.stop();
  const { master } = await startMaster(t, { env, port: first.port });
  await turnUntil(clock, () => master.members().size === 2);
  t.is(a.ids(), 'a,b,c');
  await turnUntil(clock, () => a.ids() === 'a,b' && b.ids() === 'a,b');
  t.deepEqual(a.seen.at(-1), ['a', 'b']);
  t.false(
    a.seen.some((ids) => ids.length === 1 && a.seen.indexOf(ids) > 1),
    'never alone after it had company',
  );
});

test('discovery: without a master at start it goes on alone, says so once, and connects when one appears', async (t) => {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const port = await freePort();
  const a = newMember(t, `127.0.0.1:${port}`, nodeOf('a'), { env });
  let started = false;
  const starting = a.client.start().then(() => {
    started = true;
  });
  await until(() => messages.length > 0);
  t.false(started);
  const startedMs = clock.nowMs();
  await turnUntil(clock, () => started);
  await starting;
  t.true(clock.nowMs() - startedMs <= DISCOVERY_START_TIMEOUT_MS + 100);
  t.is(a.ids(), 'a');
  t.deepEqual(messages.filter((message) => message.startsWith('warn')).length, 1);
  t.regex(messages[0] as string, /no discovery master is reachable/);
  const { master } = await startMaster(t, { env, port });
  await turnUntil(clock, () => master.members().has('a'));
});

simulated('discovery: with several masters any may die, and a node joins through those that live', async (t, world) => {
  const { environment: env } = world.process();
  const one = await startMaster(t, { env });
  const two = await startMaster(t, { env });
  const addr = `${one.addr}, ${two.addr}`;
  const a = newMember(t, addr, nodeOf('a'), { env });
  const b = newMember(t, addr, nodeOf('b'), { env });
  await Promise.all([a.client.start(), b.client.start()]);
  await world.until(
    () => a.ids() === 'a,b' && b.ids() === 'a,b' && two.master.members().size === 2 && one.master.members().size === 2,
  );
  await one.master.stop();
  const c = newMember(t, addr, nodeOf('c'), { env });
  await c.client.start();
  t.is(c.ids(), 'a,b,c');
  await world.until(() => a.ids() === 'a,b,c' && b.ids() === 'a,b,c');
  t.false(a.seen.slice(1).some((ids) => ids.length < 2));
});

test('discovery: a node that a master has forgotten is told, one that a new master does not know is not', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { port, addr } = await startMaster(t, { env });
  let forgotten = 0;
  const a = newMember(t, addr, nodeOf('a'), { env, onForgotten: () => forgotten++ });
  await a.client.start();
  const untilMs = clock.nowMs() + 7_000;
  await turnUntil(clock, () => clock.nowMs() >= untilMs);
  t.is(forgotten, 0);
  await newClient(t).call({ host: '127.0.0.1', port }, 'discovery.leave', { node_id: 'a', incarnation: 1 });
  await turnUntil(clock, () => forgotten === 1);
});

simulated('discovery: every failed attempt is reported, so that the head can be replaced', async (t, world) => {
  const { environment: env } = world.process();
  const { master, addr } = await startMaster(t, { env });
  const endpoints: number[] = [];
  const a = newMember(t, addr, nodeOf('a'), { env, onUnreachable: ({ port }) => endpoints.push(port) });
  await a.client.start();
  t.deepEqual(endpoints, []);
  await master.stop();
  await world.until(() => endpoints.length >= 2);
});

simulated(
  'discovery: that the master of the own host does not run yet is no warning, that it does not start is',
  async (t, world) => {
    const warnings: string[] = [];
    const log = { log: (_level: string, message: string) => void warnings.push(message) };
    const env = { ...world.process().environment, log };
    const info = nodeOf('a', { masterAddr: '127.0.0.1:7' });
    const seen: number[] = [];
    const a = newMember(t, '127.0.0.1:7', info, { env, onUnreachable: () => seen.push(warnings.length) });
    const starting = a.client.start();
    await world.until(() => seen.length === 3);
    t.deepEqual(seen, [0, 0, 1], 'warnings before each failure');
    await a.client.stop();
    await starting;
  },
);

simulated('discovery: stop is quick and idempotent, with and without a master', async (t, world) => {
  const { environment: env } = world.process();
  const { master, addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'), { env });
  await a.client.start();
  await Promise.all([a.client.stop(), a.client.stop()]);
  await world.until(() => master.members().size === 0);
  const alone = newMember(t, '127.0.0.1:7', nodeOf('b'), { env });
  const starting = alone.client.start();
  await alone.client.stop();
  await starting;
  t.is(alone.ids(), 'b');
});

test('discovery: addresses that are none are refused with what is expected', (t) => {
  for (const addr of ['', 'host', 'host:0', 'host:99999', 'a:1,,b:2', 'a:1,b']) {
    t.throws(
      () => new DiscoveryClient(addr, nodeOf('a'), { env: testEnvironment() }),
      { code: 'ERR_CONFIG', message: /host:port/ },
      addr,
    );
  }
});

test('discovery: malformed requests are refused, counted, and harm nobody', async (t) => {
  const env = testEnvironment();
  const { master, port, addr } = await startMaster(t, { env });
  const a = newMember(t, addr, nodeOf('a'));
  await a.client.start();
  const rpc = newClient(t);
  const endpoint = { host: '127.0.0.1', port };
  const node = nodeOf('x').toDict();
  const bad: [string, object][] = [
    ['register', {}],
    ['register', { node: 'x' }],
    ['register', { node: { ...node, node_id: '' } }],
    ['register', { node: { ...node, node_id: 'x'.repeat(300) } }],
    ['register', { node: { ...node, control_port: 0 } }],
    ['register', { node: { ...node, control_port: 70000 } }],
    ['register', { node: { ...node, control_host: 'h'.repeat(300) } }],
    ['register', { node: { ...node, incarnation: -1 } }],
    ['heartbeat', { node_id: 'a', incarnation: 1 }],
    ['heartbeat', { node_id: 7, incarnation: 1, version: 1, wait_ms: 1 }],
    ['heartbeat', { node_id: 'a', incarnation: 1, version: -1, wait_ms: 1 }],
    ['leave', { node_id: 'a' }],
  ];
  for (const [method, params] of bad) {
    await t.throwsAsync(
      rpc.call(endpoint, `discovery.${method}`, params),
      { code: 'ERR_PROTOCOL' },
      JSON.stringify(params),
    );
  }
  t.is(env.counts.get('meshcache_rpc_errors_total bad_params'), bad.length);
  t.deepEqual([...master.members().keys()], ['a']);
});

test('discovery: random bytes on the port end their connection and nothing else', async (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const { master, port, addr } = await startMaster(t);
  const a = newMember(t, addr, nodeOf('a'));
  await a.client.start();
  for (let i = 0; i < 20; i++) {
    const raw = await rawConnection(t, port);
    const garbage = Buffer.from(random.bytes(100 + (random.u32() % 2000)));
    raw.socket.end(i % 2 === 0 ? garbage : Buffer.concat([encodeHello(), garbage]));
    await raw.closed;
  }
  const b = newMember(t, addr, nodeOf('b'));
  await b.client.start();
  t.is(b.ids(), 'a,b', `seed ${seed}`);
  t.is(master.members().size, 2);
});

test('discovery: a master that answers nonsense changes nothing', async (t) => {
  const { RpcServer } = await import('../../src/rpc/server.js');
  const liar = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const answers = [
    7,
    {},
    { status: 'ok' },
    { status: 'ok', master_id: 'm', version: 1, age_ms: 0, roster: new Uint8Array(3) },
  ];
  let next = 0;
  liar.handle('discovery.register', () => answers[next++ % answers.length]);
  const port = await liar.start();
  t.teardown(() => liar.stop());
  const a = newMember(t, `127.0.0.1:${port}`, nodeOf('a'));
  void a.client.start();
  await until(() => next >= answers.length);
  t.is(a.ids(), 'a');
});

test('discovery: a node that is alone is told so by the first answer of a master', async (t) => {
  // Cause: the list was compared with the own node alone, so that its answer was no change.
  const { addr } = await startMaster(t);
  const a = newMember(t, addr, nodeOf('a'));
  await a.client.start();
  t.deepEqual(a.seen, [['a']]);
});

test('discovery: who stops while its register is under way says good-bye all the same', async (t) => {
  // Cause: good-bye was said only after an answer, which the master may have been about to give.
  const master = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const received: string[] = [];
  master.handle('discovery.register', () => {
    received.push('register');
    return new Promise(() => {});
  });
  master.handle('discovery.leave', (params) => {
    received.push(`leave of ${(params as { node_id: unknown }).node_id}`);
    return {};
  });
  const port = await master.start();
  t.teardown(() => master.stop());
  const a = newMember(t, `127.0.0.1:${port}`, nodeOf('a'));
  const starting = a.client.start();
  await until(() => received.length > 0);
  await a.client.stop();
  await starting;
  t.deepEqual(received, ['register', 'leave of a']);
});

test('discovery: an address that nobody can connect to is refused with what to give instead', (t) => {
  for (const addr of ['0.0.0.0:7000', '[::]:7000', '[0:0::0]:7000', 'head:7000,0.0.0.0:7000', '0x0:7000']) {
    t.throws(() => new DiscoveryClient(addr, nodeOf('a'), { env: testEnvironment() }), {
      code: 'ERR_CONFIG',
      message: /give the address or the name/,
    });
  }
  t.notThrows(() => new DiscoveryClient('[::1]:7000,10.0.0.1:7000', nodeOf('a'), { env: testEnvironment() }));
});

test('discovery: times and addresses that are none are refused', (t) => {
  const env = testEnvironment();
  for (const wrong of [Number.NaN, -1, 0, '2', null]) {
    for (const options of [{ heartbeatInterval: wrong as number }, { memberTtl: wrong as number }]) {
      t.throws(() => new DiscoveryClient('head:7000', nodeOf('a'), { ...options, env }), { code: 'ERR_ARGUMENT' });
      t.throws(() => new DiscoveryServer('127.0.0.1', 0, { ...options, env }), { code: 'ERR_ARGUMENT' });
    }
  }
  for (const addr of [undefined, 7000, ['head:7000']]) {
    t.throws(() => new DiscoveryClient(addr as never, nodeOf('a'), { env }), { code: 'ERR_CONFIG' });
  }
});

/** A port that takes connections at once, and passes them on to `port` when it is opened. */
async function gateTo(t: ExecutionContext, port: number) {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const sockets = new Set<net.Socket>();
  const gate = net.createServer(async (socket) => {
    sockets.add(socket.on('error', () => {}));
    await opened;
    const onward = net.connect(port, '127.0.0.1').on('error', () => {});
    sockets.add(onward);
    socket.pipe(onward).pipe(socket);
  });
  const gatePort = await listenAlone(gate);
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    gate.close();
  });
  return { port: gatePort, open };
}

test('discovery: a node does not start with what its own master knows while another one may answer', async (t) => {
  // Cause: the own master, which has just started and knows nobody, answers first: the node went on as if it was alone.
  const [own, other] = [await startMaster(t), await startMaster(t)];
  const b = newMember(t, other.addr, nodeOf('b'));
  await b.client.start();
  const gate = await gateTo(t, other.port);
  const isOwnMaster = (masterId: string): boolean => masterId === own.master.masterId;
  const a = newMember(t, `${own.addr},127.0.0.1:${gate.port}`, nodeOf('a'), { isOwnMaster });
  let hasStarted = false;
  const starting = a.client.start().then(() => {
    hasStarted = true;
  });
  await until(() => a.client.isReachable);
  await new Promise((resolve) => setImmediate(resolve));
  t.false(hasStarted);
  gate.open();
  await starting;
  t.is(a.ids(), 'a,b');
});

test('discovery: a node starts with what its own master knows when no other one can be reached', async (t) => {
  const own = await startMaster(t);
  const clock = new ManualClock();
  const isOwnMaster = (masterId: string): boolean => masterId === own.master.masterId;
  const addr = `${own.addr},127.0.0.1:${await freePort()}`;
  // The clock stands still: the time limit is not what ends it.
  const a = newMember(t, addr, nodeOf('a'), { isOwnMaster, env: testEnvironment({ clock }) });
  await a.client.start();
  t.is(a.ids(), 'a');
});
