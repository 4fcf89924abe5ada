import test, { type ExecutionContext } from 'ava';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../src/base/limits.js';
import { keyFields } from '../../src/directory/messages/wire.js';
import { Promotions } from '../../src/node/remote-pages/promotions.js';
import type { PromoteOutcome } from '../../src/store/disk/promoter.js';
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

/** A server that answers as `promote` says, and promotions of a node `reader` that knows it as `owner`. */
async function setUp(t: ExecutionContext, promote: (reader: string, keys: readonly string[]) => PromoteOutcome[]) {
  const { server, endpoint } = await startServer(t);
  const rpc = newClient(t);
  const endpointOf = (nodeId: string) => (nodeId === 'owner' ? endpoint : undefined);
  const promotions = new Promotions({ rpc, endpointOf, nodeId: 'reader' });
  const released: [string, string[]][] = [];
  promotions.handle(server, {
    promote: async (reader, keys) => promote(reader, keys),
    release: (reader, keys) => released.push([reader, [...keys]]),
  });
  return { server, endpoint, rpc, promotions, released };
}

test('promotions: outcomes arrive as they were, also of odd keys', async (t) => {
  const asked: [string, string[]][] = [];
  const answers: PromoteOutcome[] = [
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
  t.deepEqual(await promotions.ask('owner', ODD_KEYS), answers);
  t.deepEqual(asked, [['reader', ODD_KEYS]]);
  promotions.release('owner', ODD_KEYS);
  await until(() => released.length > 0);
  t.deepEqual(released, [['reader', ODD_KEYS]]);
});

test('promotions: pages of an owner that cannot be reached or fails are absent', async (t) => {
  const { promotions, server } = await setUp(t, () => {
    throw new Error('broken');
  });
  t.deepEqual(await promotions.ask('unknown', ['a', 'b']), ['absent', 'absent']);
  t.deepEqual(await promotions.ask('owner', ['a']), ['absent']);
  t.deepEqual(await promotions.ask('owner', ['\ud800']), ['absent'], 'a key that is not well-formed text');
  await server.stop();
  t.deepEqual(await promotions.ask('owner', ['a']), ['absent']);
  promotions.release('owner', ['a']);
  promotions.release('unknown', ['a']);
});

test('promotions: an answer that cannot be right is not believed', async (t) => {
  let answer: PromoteOutcome[] = [];
  const { promotions } = await setUp(t, () => answer);
  for (const wrong of [
    [],
    [locationOf('owner'), locationOf('owner'), locationOf('owner')],
    [locationOf('owner'), locationOf('other')],
    [locationOf('owner'), locationOf('owner', { tier: 'disk' })],
  ]) {
    answer = wrong;
    t.deepEqual(await promotions.ask('owner', ['a', 'b']), ['absent', 'absent']);
  }
  answer = [locationOf('owner'), 'later'];
  t.deepEqual(await promotions.ask('owner', ['a', 'b']), answer);

  const { server, endpoint } = await startServer(t);
  let raw: unknown;
  server.handle('disk.promote', () => raw);
  const asking = new Promotions({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: 'reader' });
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
    t.deepEqual(await asking.ask('owner', ['a', 'b']), ['absent', 'absent']);
  }
  raw = { outcomes: new Uint8Array([0, 2]), ...nothing };
  t.deepEqual(await asking.ask('owner', ['a', 'b']), ['absent', 'later']);
});

test('promotions: malformed requests are refused whole', async (t) => {
  let promotes = 0;
  const { rpc, endpoint, released } = await setUp(t, (_, keys) => {
    promotes++;
    return keys.map(() => 'absent');
  });
  const keys = keyFields(['a', 'b']);
  const bad: object[] = [
    {},
    { reader: 'r' },
    keys,
    { ...keys, reader: 7 },
    { ...keys, reader: '' },
    { ...keys, reader: 'r'.repeat(257) },
    { reader: 'r', key_lengths: keys.key_lengths, key_text: Buffer.from('abc') },
    { reader: 'r', key_lengths: new Uint8Array(7), key_text: keys.key_text },
    { reader: 'r', key_lengths: ['a'], key_text: 'a' },
    { reader: 'r', ...keyFields(Array.from({ length: DIRECTORY_REQUEST_MAX_KEYS + 1 }, (_, i) => `${i}`)) },
    { reader: 'r', ...keyFields(['x'.repeat(70_000)]) },
    { reader: 'r', ...keyFields(Array.from({ length: 80 }, () => 'x'.repeat(60_000))) },
  ];
  for (const params of bad) {
    await t.throwsAsync(rpc.call(endpoint, 'disk.promote', params), { code: 'ERR_PROTOCOL' });
    await t.throwsAsync(rpc.call(endpoint, 'disk.release', params), { code: 'ERR_PROTOCOL' });
  }
  t.is(promotes, 0);
  t.deepEqual(released, []);
  await rpc.call(endpoint, 'disk.promote', { reader: 'r', ...keys });
  t.is(promotes, 1);
});

test('promotions: eight nodes read two hundred pages through a pool of four, byte for byte', async (t) => {
  const owner = await newOwner(t, { poolPages: 4, diskPages: 200 });
  const { server, endpoint } = await startServer(t);
  new Promotions({ rpc: newClient(t), endpointOf: () => undefined, nodeId: 'owner' }).handle(server, owner.promoter);
  const readers = Array.from({ length: 8 }, async (_, r) => {
    const promotions = new Promotions({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: `reader-${r}` });
    const results = await new PromotedReading('owner', owner.keys, {
      ask: (nodeId, keys) => promotions.ask(nodeId, keys),
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
  new Promotions({ rpc: newClient(t), endpointOf: () => undefined, nodeId: 'owner' }).handle(server, owner.promoter);
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, r) =>
      new Promotions({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: `reader-${r}` }).ask('owner', owner.keys),
    ),
  );
  for (const outcomes of answers) {
    t.is(summary(outcomes), 'p'.repeat(20));
    for (const [i, outcome] of outcomes.entries()) t.deepEqual(owner.readAt(located(outcome)), content(i, PAGE));
  }
  t.true([...owner.disk.reads.values()].every((count) => count === 1));
});
