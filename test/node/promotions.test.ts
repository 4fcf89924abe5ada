import test, { type ExecutionContext } from 'ava';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../src/base/limits.js';
import { keyFields } from '../../src/directory/messages/wire.js';
import { HoldCalls } from '../../src/node/holding/hold-calls.js';
import type { RpcServer } from '../../src/rpc/server.js';
import type { AskedPages, HoldOutcome } from '../../src/store/ground/other-holders.js';
import { PromotedReading } from '../../src/store/remote/promoted-reading.js';
import { DataLocation } from '../../src/types.js';
import { patientClock } from '../_support/patient-clock.js';
import { newClient, startServer } from '../_support/rpc/server.js';
import { located, newOwner, PAGE, summary } from '../_support/store/owner.js';
import { content, until } from '../_support/support.js';

const ODD_KEYS = ['', '\ufeffk', 'ключ/ü', '\u{1f600}', 'k'.repeat(3000)];

function locationOf(nodeId: string, init: Partial<DataLocation> = {}): DataLocation {
  const base = { nodeId, rdmaEndpoint: '10.0.0.1:5', remoteAddr: 2n ** 63n + 5n, rkey: 0xfffffffe, length: 1 << 20 };
  return new DataLocation({ ...base, checksum: 0xdeadbeef, incarnation: 1_700_000_000_000, generation: 3, ...init });
}

/** A server that answers as `promote` says, and the calls of a node `reader` that knows it as `owner`. */
async function setUp(t: ExecutionContext, promote: (reader: string, keys: readonly string[]) => HoldOutcome[]) {
  const { server, endpoint } = await startServer(t);
  const rpc = newClient(t);
  const endpointOf = (nodeId: string) => (nodeId === 'owner' ? endpoint : undefined);
  const promotions = new HoldCalls({ rpc, endpointOf, nodeId: 'reader' });
  const released: [string, string[]][] = [];
  promotions.handle(server, {
    hold: async ({ why, asker, keys }) => {
      t.is(why, 'promotion');
      return promote(asker, keys);
    },
    release: (reader, keys) => released.push([reader, [...keys]]),
  });
  return { server, endpoint, rpc, promotions, released };
}

/** Has an owner's promoter answer at the server. */
function answerWith(t: ExecutionContext, server: RpcServer, { promoter }: Awaited<ReturnType<typeof newOwner>>): void {
  const calls = new HoldCalls({ rpc: newClient(t), endpointOf: () => undefined, nodeId: 'owner' });
  calls.handle(server, {
    hold: ({ asker, keys }) => promoter.promote(asker, keys),
    release: (reader, keys) => promoter.release(reader, keys),
  });
}

function wish(keys: readonly string[]): AskedPages {
  return { why: 'promotion', keys, pages: [] };
}

test('promotions: outcomes arrive as they were, also of odd keys', async (t) => {
  const asked: [string, string[]][] = [];
  const answers: HoldOutcome[] = [
    locationOf('owner'),
    'later',
    'absent',
    locationOf('owner', { remoteAddr: 0n }),
    'later',
  ];
  const { promotions, released } = await setUp(t, (reader, keys) => {
    asked.push([reader, [...keys]]);
    return answers;
  });
  t.deepEqual(await promotions.ask('owner', wish(ODD_KEYS)), answers);
  t.deepEqual(asked, [['reader', ODD_KEYS]]);
  promotions.release('owner', ODD_KEYS);
  await until(() => released.length > 0);
  t.deepEqual(released, [['reader', ODD_KEYS]]);
});

test('promotions: an owner that cannot be reached or fails gives no outcomes', async (t) => {
  const { promotions, server } = await setUp(t, () => {
    throw new Error('broken');
  });
  t.deepEqual(await promotions.ask('unknown', wish(['a', 'b'])), undefined);
  t.deepEqual(await promotions.ask('owner', wish(['a'])), undefined);
  t.deepEqual(await promotions.ask('owner', wish(['\ud800'])), undefined, 'a key that is not well-formed text');
  await server.stop();
  t.deepEqual(await promotions.ask('owner', wish(['a'])), undefined);
  promotions.release('owner', ['a']);
  promotions.release('unknown', ['a']);
});

test('promotions: an answer that cannot be right is not believed', async (t) => {
  let answer: HoldOutcome[] = [];
  const { promotions } = await setUp(t, () => answer);
  for (const wrong of [
    [],
    [locationOf('owner'), locationOf('owner'), locationOf('owner')],
    [locationOf('owner'), locationOf('other')],
    [locationOf('owner'), locationOf('owner', { tier: 'disk' })],
  ]) {
    answer = wrong;
    t.deepEqual(await promotions.ask('owner', wish(['a', 'b'])), undefined);
  }
  answer = [locationOf('owner'), 'later'];
  t.deepEqual(await promotions.ask('owner', wish(['a', 'b'])), answer);

  const { server, endpoint } = await startServer(t);
  let raw: unknown;
  server.handle('pages.hold', () => raw);
  const asking = new HoldCalls({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: 'reader' });
  const nothing = { nodes: [], locations: new Uint8Array(0) };
  for (raw of [
    null,
    7,
    {},
    { outcomes: new Uint8Array([1, 1]), ...nothing },
    { outcomes: new Uint8Array([2]), ...nothing },
    { outcomes: new Uint8Array([0, 2]), nodes: [], locations: new Uint8Array(36) },
    { outcomes: 'ab', ...nothing },
  ]) {
    t.deepEqual(await asking.ask('owner', wish(['a', 'b'])), undefined);
  }
  raw = { outcomes: new Uint8Array([0, 2]), ...nothing };
  t.deepEqual(await asking.ask('owner', wish(['a', 'b'])), ['absent', 'later']);
});

test('promotions: malformed requests are refused whole', async (t) => {
  let promotes = 0;
  const { rpc, endpoint, released } = await setUp(t, (_, keys) => {
    promotes++;
    return keys.map(() => 'absent');
  });
  const keys = keyFields(['a', 'b']);
  const why = 'promotion';
  const bad: object[] = [
    {},
    { asker: 'r' },
    keys,
    { ...keys, asker: 7 },
    { ...keys, asker: '' },
    { ...keys, asker: 'r'.repeat(257) },
    { asker: 'r', key_lengths: keys.key_lengths, key_text: Buffer.from('abc') },
    { asker: 'r', key_lengths: new Uint8Array(7), key_text: keys.key_text },
    { asker: 'r', key_lengths: ['a'], key_text: 'a' },
    { asker: 'r', ...keyFields(Array.from({ length: DIRECTORY_REQUEST_MAX_KEYS + 1 }, (_, i) => `${i}`)) },
    { asker: 'r', ...keyFields(['x'.repeat(70_000)]) },
    { asker: 'r', ...keyFields(Array.from({ length: 80 }, () => 'x'.repeat(60_000))) },
  ];
  for (const params of bad) {
    await t.throwsAsync(rpc.call(endpoint, 'pages.hold', { why, ...params }), { code: 'ERR_PROTOCOL' });
    await t.throwsAsync(rpc.call(endpoint, 'pages.release', params), { code: 'ERR_PROTOCOL' });
  }
  t.is(promotes, 0);
  t.deepEqual(released, []);
  for (const odd of ['hot', 'pin', 7, undefined]) {
    await t.throwsAsync(rpc.call(endpoint, 'pages.hold', { why: odd, asker: 'r', ...keys }), { code: 'ERR_PROTOCOL' });
  }
  await rpc.call(endpoint, 'pages.hold', { why, asker: 'r', ...keys });
  t.is(promotes, 1);
});

test('promotions: eight nodes read two hundred pages through a pool of four, byte for byte', async (t) => {
  const owner = await newOwner(t, { poolPages: 4, diskPages: 200 });
  const { server, endpoint } = await startServer(t);
  answerWith(t, server, owner);
  const readers = Array.from({ length: 8 }, async (_, r) => {
    const promotions = new HoldCalls({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: `reader-${r}` });
    const results = await new PromotedReading('owner', owner.keys, {
      ask: async (nodeId, keys) => (await promotions.ask(nodeId, wish(keys))) ?? keys.map(() => 'absent'),
      release: (nodeId, keys) => promotions.release(nodeId, keys),
      read: async (entries) =>
        entries.map(({ index, location }) => {
          const bytes = owner.readAt(location);
          if (bytes !== null) t.deepEqual(bytes, content(index, PAGE));
          return bytes !== null;
        }),
      isEnded: () => false,
      clock: patientClock,
    }).run();
    t.deepEqual(
      results.map((isRead, i) => (isRead ? -1 : i)).filter((i) => i >= 0),
      [],
    );
  });
  await Promise.all(readers);
  await until(() => owner.pool.stats().pinned === 0);
});

test('promotions: eight nodes that want the same pages at once make the disk read each once', async (t) => {
  const owner = await newOwner(t, { poolPages: 64, diskPages: 20 });
  const { server, endpoint } = await startServer(t);
  answerWith(t, server, owner);
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, r) =>
      new HoldCalls({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: `reader-${r}` }).ask(
        'owner',
        wish(owner.keys),
      ),
    ),
  );
  for (const outcomes of answers) {
    t.is(summary(outcomes ?? []), 'p'.repeat(20));
    for (const [i, outcome] of (outcomes ?? []).entries())
      t.deepEqual(owner.readAt(located(outcome)), content(i, PAGE));
  }
  t.true([...owner.disk.reads.values()].every((count) => count === 1));
});
