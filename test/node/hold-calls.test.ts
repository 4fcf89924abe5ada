import test, { type ExecutionContext } from 'ava';
import { HOLD_REQUEST_MAX_KEYS } from '../../src/base/limits.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { keyFields, locationFields } from '../../src/directory/messages/wire.js';
import { HoldCalls } from '../../src/node/holding/hold-calls.js';
import type { HoldOutcome, HoldRequest } from '../../src/store/ground/other-holders.js';
import { DataLocation, type DataLocationInit } from '../../src/types.js';
import { newClient, startServer } from '../_support/rpc/server.js';

const OUTCOMES: readonly HoldOutcome[] = ['absent', 'held', 'later', 'outdated', 'too_large', 'busy'];

/** A page of the node `asker`. */
function pageOf(init: Partial<DataLocationInit> = {}): DataLocation {
  const place = { nodeId: 'asker', rdmaEndpoint: '10.0.0.1:5', remoteAddr: 4096n, rkey: 7, length: 9 };
  return new DataLocation({ ...place, checksum: 5, version: 3, incarnation: 17, ...init });
}

/** A node `holder` that answers as `hold` says, and the calls of a node `asker`. */
async function setUp(t: ExecutionContext, hold: (request: HoldRequest) => readonly HoldOutcome[]) {
  const { server, endpoint } = await startServer(t);
  const rpc = newClient(t);
  const calls = new HoldCalls({
    rpc,
    endpointOf: (nodeId) => (nodeId === 'holder' ? endpoint : undefined),
    nodeId: 'asker',
  });
  calls.handle(server, { hold: async (request) => [...hold(request)], release() {} });
  return { server, endpoint, rpc, calls };
}

for (const why of ['handover', 'placement'] as const) {
  test(`hold calls: pages arrive as they are here, and outcomes as they were given: ${why}`, async (t) => {
    const requests: HoldRequest[] = [];
    const { calls } = await setUp(t, (request) => {
      requests.push(request);
      return OUTCOMES;
    });
    const keys = OUTCOMES.map((_, i) => `key ${i}`);
    const pages = [
      pageOf(),
      pageOf({ kind: 'named', version: 2 ** 50, expires: 2 ** 49 }),
      pageOf({ tier: 'disk', checksum: 0xffffffff }),
      pageOf({ setBy: 12345 }),
      pageOf({ length: 2 ** 33, stamp: 2 ** 40, tail: 9 }),
      pageOf({ generation: 4 }),
    ];
    t.deepEqual(await calls.ask('holder', { why, keys, pages }), OUTCOMES);
    t.deepEqual(requests, [{ why, asker: 'asker', keys, pages }]);
    t.is(await calls.ask('unknown', { why, keys, pages }), undefined);
  });
}

test('hold calls: requests that do not fit together are refused whole', async (t) => {
  let requests = 0;
  const { rpc, endpoint } = await setUp(t, ({ keys }) => {
    requests++;
    return keys.map(() => 'held');
  });
  const located = (...pages: DataLocation[]) => locationFields(LocationColumns.of(pages));
  const good = { why: 'placement', asker: 'asker', ...keyFields(['a', 'b']), ...located(pageOf(), pageOf()) };
  const many = Array.from({ length: HOLD_REQUEST_MAX_KEYS + 1 }, (_, i) => `${i}`);
  const bad: object[] = [
    { ...good, why: 'hot' },
    { ...good, asker: 'another node' },
    { ...good, asker: '' },
    { ...good, ...located(pageOf()) },
    { ...good, ...located(pageOf(), pageOf({ nodeId: 'third' })) },
    { ...good, ...located(pageOf(), pageOf({ length: 0 })) },
    { ...good, locations: undefined },
    { ...good, ...locationFields(new LocationColumns(2)) },
    { ...good, ...keyFields(many), ...located(...many.map(() => pageOf())) },
    { ...good, why: 'promotion', ...keyFields(many) },
  ];
  for (const [i, params] of bad.entries()) {
    await t.throwsAsync(rpc.call(endpoint, 'pages.hold', params), { code: 'ERR_PROTOCOL' }, `${i}`);
  }
  t.is(requests, 0);
  await rpc.call(endpoint, 'pages.hold', good);
  t.is(requests, 1);
});

test('hold calls: a node that fails, or answers with something else, has given no outcomes', async (t) => {
  const { server, endpoint } = await startServer(t);
  let raw: unknown = new Error('broken');
  server.handle('pages.hold', () => {
    if (raw instanceof Error) throw raw;
    return raw;
  });
  const calls = new HoldCalls({ rpc: newClient(t), endpointOf: () => endpoint, nodeId: 'asker' });
  const asked = { why: 'handover', keys: ['a', 'b'], pages: [pageOf(), pageOf()] } as const;
  t.is(await calls.ask('holder', asked), undefined);
  for (raw of [null, {}, { outcomes: new Uint8Array(1) }, { outcomes: 'ab' }]) {
    t.is(await calls.ask('holder', asked), undefined);
  }
  raw = { outcomes: Uint8Array.of(1, 99) };
  t.deepEqual(await calls.ask('holder', asked), ['held', 'absent'], 'an outcome of a later version');
});
