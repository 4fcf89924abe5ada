import { isVersion } from '../../../src/base/concurrency/hybrid-clock.js';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../../src/base/limits.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { keyFields, locationFields } from '../../../src/directory/messages/wire.js';
import { PageNotices } from '../../../src/node/remote-pages/page-notices.js';
import { Promotions } from '../../../src/node/remote-pages/promotions.js';
import { PageDrops } from '../../../src/node/upkeep/page-drops.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { DataLocation } from '../../../src/types.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { memoryEnvironment } from '../memory-environment.js';
import { receivedValue, valueInput } from '../values.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const KEYS = ['page-1', 'page-2', 'page-3'];

/** A call to one of the methods by which nodes talk of pages: [method, params]. */
export const nodeCalls: Fuzzer = {
  name: 'node-calls',
  what: 'requests to promote, release and drop pages, and notices of pages',
  form: 'value',
  seeds: () => {
    const { key_lengths: lengths, key_text: text } = keyFields(KEYS);
    const keys = { key_lengths: hex(lengths), key_text: hex(text) };
    const fields = { reader: 'n', ...keys };
    return [
      valueInput(['disk.promote', fields]),
      valueInput(['disk.release', fields]),
      valueInput([
        'pool.touch',
        { ...keys, read_counts: hex(Uint8Array.of(3, 0, 0, 0)), read_hints: hex(Uint8Array.of(0)) },
      ]),
      valueInput(['pool.restate', { key_lengths: hex(new Uint8Array(0)), key_text: hex(new Uint8Array(0)) }]),
      valueInput([
        'pool.touch',
        { ...keys, read_counts: hex(Uint8Array.of(2, 0, 0, 0, 1, 0, 0, 0)), read_hints: hex(Uint8Array.of(1, 9)) },
      ]),
      valueInput([
        'pages.drop',
        { ...fields, void_below: hex(new Uint8Array(Float64Array.of(0, 7, 2 ** 52).buffer)), reason: 1 },
      ]),
      valueInput(['pages.restate', { node_id: 'b' }]),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const [method, params] = received.value as unknown[];
    const handlers = new Handlers();
    const told: (readonly string[])[] = [];
    const env = memoryEnvironment();
    const parts = { rpc: {} as RpcClient, endpointOf: () => ENDPOINT, nodeId: 'me', env };
    new Promotions(parts).handle(handlers.asServer(), {
      async promote(reader, keys) {
        check(reader !== '' && typeof reader === 'string', 'a reader without a name');
        told.push(keys);
        return keys.map((_, i) => (i % 2 === 0 ? 'absent' : 'later'));
      },
      release: (_reader, keys) => void told.push(keys),
    });
    new PageNotices(parts).handle(handlers.asServer(), {
      touch(reads) {
        check(
          reads.every(({ hint }) => [0, 1, 2, 3].includes(hint as number)),
          'a hint that is none',
        );
        told.push(reads.flatMap(({ keys }) => keys));
      },
      async restate(keys) {
        told.push(keys);
      },
    });
    new PageDrops({ ...parts, joinMs: 0 }).handle(
      handlers.asServer(),
      async (keys, voidBelow, reason) => {
        check(voidBelow.length === keys.length && voidBelow.every(isVersion), 'no versions');
        check(['superseded', 'deleted', 'tied'].includes(reason), `reason ${reason}`);
        told.push(keys);
        return 0;
      },
      () => told.push([]),
    );
    const answer = await handlers.call(method, params);
    check(told.length === Number(answer !== undefined), 'refused, and yet done; or the other way round');
    for (const keys of told) {
      check(keys.length <= DIRECTORY_REQUEST_MAX_KEYS, `${keys.length} keys`);
      check(
        keys.every((key) => typeof key === 'string'),
        'a key that is no text',
      );
    }
  },
};

/** What an owner answers to the request to promote three pages. */
export const promoteAnswers: Fuzzer = {
  name: 'promote-answers',
  what: 'answers to requests to promote pages: one outcome a key, whatever comes',
  form: 'value',
  seeds: () => {
    const location = new DataLocation({ nodeId: 'owner', rdmaEndpoint: 'h:1', remoteAddr: 4096n, rkey: 1, length: 9 });
    const { nodes, locations } = locationFields(
      LocationColumns.of([location], { nodeId: '', incarnation: 0, generation: 0 }),
    );
    return [
      valueInput({ outcomes: { $bytes: '010200' }, nodes: nodes as never, locations: hex(locations) }),
      valueInput({ outcomes: { $bytes: '000202' }, nodes: [], locations: { $bytes: '' } }),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const rpc = { call: async () => received.value } as unknown as RpcClient;
    const outcomes = await new Promotions({ rpc, endpointOf: () => ENDPOINT, nodeId: 'me' }).ask('owner', KEYS);
    check(outcomes.length === KEYS.length, `${outcomes.length} outcomes`);
    for (const outcome of outcomes) {
      if (outcome === 'absent' || outcome === 'later') continue;
      check(
        outcome instanceof DataLocation && outcome.nodeId === 'owner' && outcome.tier === 'memory',
        'a page elsewhere',
      );
    }
  },
};

function hex(bytes: Uint8Array): { $bytes: string } {
  return { $bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex') };
}
