import test from 'ava';
import {
  DISCOVERY_LOG_INTERVAL_MS,
  DISCOVERY_REFUSED_KEPT_MS,
  DISCOVERY_REFUSED_MAX_COUNT,
} from '../../src/base/limits.js';
import {
  type ClusterSettings,
  decodeDifferences,
  decodeSettings,
  differencesOf,
  encodeDifferences,
  encodeSettings,
} from '../../src/discovery/messages/cluster-settings.js';
import { MemberTable } from '../../src/discovery/messages/member-table.js';
import { RefusedNodes } from '../../src/discovery/refused-nodes.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { RpcServer } from '../../src/rpc/server.js';
import { NamespaceFingerprint } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { loggedEnvironment, newMember, nodeOf, startMaster, turnUntil } from '../_support/discovery/masters.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const OURS: ClusterSettings = { vnodes: 160, directoryReplicas: 2, verifyReads: true, reuseQuarantineMs: 1000 };
const OTHERS: ClusterSettings = { ...OURS, vnodes: 100 };
const owner = { nodeId: 'head', settings: OURS };

const keysOf = (theirs: Partial<ClusterSettings>, ours: ClusterSettings): string =>
  differencesOf(theirs, ours)
    .map(({ key, theirs, ours }) => `${key} ${theirs} ${ours}`)
    .join(', ');

test('settings: what must be alike, and what may differ', (t) => {
  const unchecked = { ...OURS, verifyReads: false };
  t.is(keysOf(OURS, OURS), '');
  t.is(keysOf(OTHERS, OURS), 'vnodes 100 160');
  t.is(keysOf({ ...OTHERS, directoryReplicas: 3 }, OURS), 'vnodes 100 160, directory_replicas 3 2');
  t.is(keysOf({ ...OURS, reuseQuarantineMs: 5 }, OURS), '', 'checked reads do not rely on the quarantine');
  t.is(keysOf({ ...unchecked, reuseQuarantineMs: 5 }, unchecked), 'reuse_quarantine_ms 5 1000');
  t.is(keysOf(unchecked, OURS), 'verify_reads false true');
  t.is(keysOf(OURS, unchecked), 'verify_reads true false');
  t.is(keysOf({}, OURS), '', 'a version that says nothing');
  t.is(keysOf({ vnodes: 160 }, unchecked), '');
});

test('settings: they survive a message, unknown ones are ignored, and garbage is refused', (t) => {
  const codec = new MessageCodec();
  const sent = { ...encodeSettings(OURS), later: { any: 'thing' } };
  t.deepEqual(decodeSettings(codec.decode(codec.encode(sent))), OURS);
  t.deepEqual(decodeSettings(JSON.parse(JSON.stringify(sent))), OURS);
  t.deepEqual(decodeSettings(undefined), {});
  for (const bad of [7, 'x', [], { vnodes: '160' }, { vnodes: -1 }, { vnodes: Number.NaN }, { verify_reads: 1 }]) {
    t.throws(() => decodeSettings(bad), { code: 'ERR_PROTOCOL' }, JSON.stringify(bad));
  }
  const differences = differencesOf(OTHERS, OURS);
  t.deepEqual(decodeDifferences(codec.decode(codec.encode(encodeDifferences(differences)))), differences);
  for (const bad of [
    undefined,
    [],
    [7],
    [['vnodes', 1]],
    [['\u001b', 1, 2]],
    [['vnodes', 'x', 2]],
    [['fingerprint', 'x', 2]],
    [['fingerprint', 'x', 'x'.repeat(129)]],
    Array(99).fill(7),
  ]) {
    t.throws(() => decodeDifferences(bad), { code: 'ERR_PROTOCOL' }, JSON.stringify(bad));
  }
});

const NAMESPACE = '0'.repeat(32);
const printed = (value: string, namespace = NAMESPACE) => ({ fingerprint: new NamespaceFingerprint(namespace, value) });

test('settings: a node whose namespace has another fingerprint is refused, and the error names both', async (t) => {
  const { env, messages } = loggedEnvironment();
  const { addr } = await startMaster(t, { env });
  const start = (id: string, init: Parameters<typeof nodeOf>[1]) => newMember(t, addr, nodeOf(id, init)).client.start();
  await start('a', printed('5eed'));
  const error = await t.throwsAsync(start('b', printed('5eee')), { code: 'ERR_CONFIG' });
  for (const part of ['"fingerprint"', 'got 5eee', '"a"', addr, 'has 5eed']) {
    t.true(error?.message.includes(part), `${part}: ${error?.message}`);
  }
  t.true(messages.some((message) => message.startsWith('error node refused')));
  await t.notThrowsAsync(start('c', printed('5eed')));
  await t.notThrowsAsync(start('d', printed('5eee', '1'.repeat(32))), 'another namespace');
  await t.notThrowsAsync(start('e', {}), 'no fingerprint');
  await t.notThrowsAsync(start('f', printed('5eee', '2'.repeat(32))));
});

test('settings: a node with another fingerprint that is there first keeps others out only while it is a member', async (t) => {
  const { addr } = await startMaster(t, { env: loggedEnvironment().env });
  const first = newMember(t, addr, nodeOf('first', printed('5eee'))).client;
  await first.start();
  const start = (id: string) => newMember(t, addr, nodeOf(id, printed('5eed'))).client.start();
  const error = await t.throwsAsync(start('a'), { code: 'ERR_CONFIG' });
  t.true(error?.message.includes('"first"'), error?.message);
  await first.stop();
  await t.notThrowsAsync(start('a'));
  await t.notThrowsAsync(start('b'));
});

test('settings: a node that returns with another fingerprint does not disagree with itself', (t) => {
  const table = new MemberTable(6_000);
  table.register(nodeOf('a', printed('5eed')), 0);
  const returned = nodeOf('a', { ...printed('5eee'), incarnation: 2 });
  t.is(table.disagreeing(returned), undefined);
  t.is(table.disagreeing(nodeOf('b', printed('5eee')))?.nodeId, 'a');
  t.is(table.register(returned, 1), 'ok');
  t.is(table.disagreeing(nodeOf('b', printed('5eee'))), undefined);
});

test('settings: a node that differs is refused at its start, with everything that it needs to know', async (t) => {
  const { env, messages } = loggedEnvironment();
  const { master, addr } = await startMaster(t, { env, owner });
  const a = newMember(t, addr, nodeOf('a'), { settings: OURS });
  await a.client.start();
  const b = newMember(t, addr, nodeOf('b'), { settings: OTHERS });
  const error = await t.throwsAsync(b.client.start(), { code: 'ERR_CONFIG' });
  for (const part of ['"vnodes"', 'got 100', '"head"', addr, 'has 160', 'Set vnodes to 160 here']) {
    t.true(error?.message.includes(part), `${part}: ${error?.message}`);
  }
  t.is(b.ids(), 'b');
  t.is(a.ids(), 'a');
  t.deepEqual([...master.members().keys()], ['a']);
  t.deepEqual(
    master.refusedNodes().map(({ nodeId, address }) => `${nodeId} ${address}`),
    ['b 127.0.0.1:7000'],
  );
  t.is(messages.filter((message) => message.startsWith('error')).length, 1);
});

test('settings: a node that is refused later goes on, says so once in a while, and joins when the master is like it', async (t) => {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const quiet = testEnvironment({ clock });
  const first = await startMaster(t, { env: quiet, owner: { ...owner, settings: OTHERS } });
  const a = newMember(t, first.addr, nodeOf('a'), { env, settings: OTHERS });
  const b = newMember(t, first.addr, nodeOf('b'), { env: quiet, settings: OTHERS });
  await Promise.all([a.client.start(), b.client.start()]);
  await turnUntil(clock, () => a.ids() === 'a,b');
  await first.master.stop();
  const second = await startMaster(t, { env: quiet, port: first.port, owner });
  await turnUntil(clock, () => a.client.refusals().size === 1);
  t.deepEqual(
    [...a.client.refusals()],
    [[first.addr, { nodeId: 'head', differences: [{ key: 'vnodes', theirs: 100, ours: 160 }] }]],
  );
  const sinceMs = clock.nowMs();
  const refused = () => messages.filter((message) => message.includes('refuses this node'));
  await turnUntil(clock, () => clock.nowMs() - sinceMs >= DISCOVERY_LOG_INTERVAL_MS * 0.9, 1000);
  t.is(refused().length, 1);
  await turnUntil(clock, () => refused().length === 2, 1000);
  t.true(clock.nowMs() - sinceMs >= DISCOVERY_LOG_INTERVAL_MS * 0.9);
  t.is(a.ids(), 'a,b');
  t.is(second.master.members().size, 0);
  await second.master.stop();
  const third = await startMaster(t, { env: quiet, port: first.port, owner: { ...owner, settings: OTHERS } });
  await turnUntil(clock, () => third.master.members().size === 2 && a.client.isReachable);
  t.is(a.client.refusals().size, 0);
});

test('settings: a node or a master that says nothing of them is taken', async (t) => {
  const with_ = await startMaster(t, { owner });
  const without = await startMaster(t);
  await newMember(t, with_.addr, nodeOf('old')).client.start();
  await newMember(t, without.addr, nodeOf('a'), { settings: OURS }).client.start();
  await newMember(t, without.addr, nodeOf('b'), { settings: OTHERS }).client.start();
  t.deepEqual([...with_.master.members().keys()], ['old']);
  t.deepEqual([...without.master.members().keys()], ['a', 'b']);
});

test('settings: garbage of a node is refused, and garbage of a master is no refusal', async (t) => {
  const { master, port } = await startMaster(t, { owner });
  const rpc = newClient(t);
  for (const settings of [7, 'x', [1], { vnodes: 'many' }, { verify_reads: null }]) {
    const params = { node: nodeOf('x').toDict(), settings };
    await t.throwsAsync(rpc.call({ host: '127.0.0.1', port }, 'discovery.register', params), { code: 'ERR_PROTOCOL' });
  }
  t.is(master.members().size + master.refusedNodes().length, 0);
  const liar = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const refused = { status: 'refused', master_id: 'm', version: 1, age_ms: 0 };
  const answers = [
    refused,
    { ...refused, refused_by: 'x', differences: [] },
    { ...refused, differences: [['a', 1, 2]] },
  ];
  let next = 0;
  liar.handle('discovery.register', () => answers[next++ % answers.length]);
  const lyingPort = await liar.start();
  t.teardown(() => liar.stop());
  const a = newMember(t, `127.0.0.1:${lyingPort}`, nodeOf('a'), { settings: OURS });
  const starting = a.client.start();
  await until(() => next > answers.length);
  t.is(a.client.refusals().size, 0);
  await a.client.stop();
  await t.notThrowsAsync(starting);
});

test('settings: refused nodes are remembered for a bounded time, up to a bounded number', (t) => {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const refused = new RefusedNodes(env);
  const differences = differencesOf(OTHERS, OURS);
  for (let i = 0; i < 2 * DISCOVERY_REFUSED_MAX_COUNT; i++) refused.refuse(nodeOf(`n${i}`), differences);
  t.is(refused.list().length, DISCOVERY_REFUSED_MAX_COUNT);
  t.is(refused.list().at(-1)?.nodeId, `n${2 * DISCOVERY_REFUSED_MAX_COUNT - 1}`);
  const logged = messages.length;
  clock.advance(DISCOVERY_REFUSED_KEPT_MS / 2);
  refused.refuse(nodeOf('n100'), differences);
  t.is(messages.length, logged);
  refused.accept('n101');
  t.is(refused.list().length, DISCOVERY_REFUSED_MAX_COUNT - 1);
  clock.advance(DISCOVERY_REFUSED_KEPT_MS / 2 + 1);
  t.deepEqual(
    refused.list().map(({ nodeId }) => nodeId),
    ['n100'],
  );
});

test('settings: a node is refused at its start by a listed master that answers later than its own', async (t) => {
  // Cause: the own master's answer ended the start, before the other listed one could say anything.
  const own = await startMaster(t);
  const other = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  other.handle('discovery.register', async () => {
    await until(() => a.ids() === 'a' && a.seen.length > 0);
    const answer = { status: 'refused', master_id: 'm', version: 1, age_ms: 0, refused_by: 'other' };
    return { ...answer, differences: [['vnodes', 160, 100]] };
  });
  const port = await other.start();
  t.teardown(() => other.stop());
  const a = newMember(t, `${own.addr},127.0.0.1:${port}`, nodeOf('a'), {
    settings: OURS,
    isOwnMaster: (masterId) => masterId === own.master.masterId,
  });
  await t.throwsAsync(a.client.start(), { code: 'ERR_CONFIG', message: /"vnodes": got 160, but node "other"/ });
});
