import { isVersion } from '../../../src/base/concurrency/hybrid-clock.js';
import { HOLD_REQUEST_MAX_KEYS } from '../../../src/base/limits.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { keyFields, locationFields } from '../../../src/directory/messages/wire.js';
import { HoldCalls } from '../../../src/node/holding/hold-calls.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import type { AskedReason } from '../../../src/store/ground/other-holders.js';
import { DataLocation } from '../../../src/types.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { hexFields, receivedValue, valueInput } from '../values.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const KEYS = ['page-1', 'page-2', 'page-3'];
const ASKED = ['promotion', 'handover', 'placement'] as const;

/** Locations of so many pages of a node. */
function locationsOf(nodeId: string, count: number): DataLocation[] {
  const location = new DataLocation({ nodeId, rdmaEndpoint: 'h:1', remoteAddr: 4096n, rkey: 1, length: 9 });
  return new Array<DataLocation>(count).fill(location);
}

function locationColumns(locations: readonly DataLocation[]) {
  return locationFields(LocationColumns.of(locations, { nodeId: '', incarnation: 0, generation: 0 }));
}

/** A call by which nodes hold pages for each other: [method, params]. */
export const holdCalls: Fuzzer = {
  name: 'hold-calls',
  what: 'requests to hold pages for other nodes, and to release them',
  form: 'value',
  tokens: ['"pages.hold"', '"pages.release"', '"why":', '"handover"', '"placement"', '"promotion"', '"asker":"n"'].map(
    (text) => Buffer.from(text),
  ),
  seeds: () => {
    const asked = (why: AskedReason, keys: readonly string[]) =>
      valueInput([
        'pages.hold',
        hexFields({ why, asker: 'n', ...keyFields(keys), ...locationColumns(locationsOf('n', keys.length)) }),
      ] as never);
    const tooMany = HOLD_REQUEST_MAX_KEYS + 1;
    return [
      ...ASKED.map((why) => asked(why, KEYS)),
      asked('placement', new Array<string>(tooMany).fill('k')),
      valueInput(['pages.release', hexFields({ asker: 'n', ...keyFields(KEYS) })] as never),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (!Array.isArray(received?.value)) return;
    const [method, params] = received.value as unknown[];
    const handlers = new Handlers();
    let done = 0;
    new HoldCalls({ rpc: {} as RpcClient, endpointOf: () => ENDPOINT, nodeId: 'me' }).handle(handlers.asServer(), {
      async hold({ why, asker, keys, pages }) {
        done++;
        check(ASKED.includes(why) && asker !== '', `${why} for ${asker}`);
        check(keys.length <= HOLD_REQUEST_MAX_KEYS, `${keys.length} keys`);
        check(pages.length === (why === 'promotion' ? 0 : keys.length), `${pages.length} pages of ${keys.length} keys`);
        for (const { nodeId, length, version, expires } of pages) {
          check(nodeId === asker && Number.isSafeInteger(length) && length > 0, `a page of ${length} bytes`);
          check(isVersion(version) && isVersion(expires), 'numbers that are none');
        }
        return keys.map((key) => (typeof key === 'string' ? 'later' : 'busy'));
      },
      release(asker, keys) {
        done++;
        check(asker !== '' && keys.every((key) => typeof key === 'string'), 'a key that is no text');
      },
    });
    const answer = await handlers.call(method, params);
    check(done === Number(answer !== undefined), 'refused, and yet done; or the other way round');
  },
};

/** What a node answers when it was asked to hold three pages. */
export const holdAnswers: Fuzzer = {
  name: 'hold-answers',
  what: 'answers to requests to hold pages: one outcome a key, whatever comes',
  form: 'value',
  seeds: () => [
    valueInput(hexFields({ outcomes: Uint8Array.of(1, 2, 0), ...locationColumns(locationsOf('owner', 1)) }) as never),
    valueInput({ outcomes: { $bytes: '000202' }, nodes: [], locations: { $bytes: '' } }),
    valueInput({ outcomes: { $bytes: '010305' } }),
    valueInput({ outcomes: { $bytes: '01' } }),
    valueInput(null),
  ],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const rpc = { call: async () => received.value } as unknown as RpcClient;
    const calls = new HoldCalls({ rpc, endpointOf: () => ENDPOINT, nodeId: 'me' });
    for (const why of ASKED) {
      const pages = why === 'promotion' ? [] : locationsOf('me', KEYS.length);
      const outcomes = await calls.ask('owner', { why, keys: KEYS, pages });
      if (outcomes === undefined) continue;
      check(outcomes.length === KEYS.length, `${outcomes.length} outcomes`);
      for (const outcome of outcomes) {
        if (why !== 'promotion') check(typeof outcome === 'string', 'a location that nobody has asked for');
        else if (outcome instanceof DataLocation) {
          check(outcome.nodeId === 'owner' && outcome.tier === 'memory', 'a page elsewhere');
        } else check(outcome !== 'held', 'a page that is held nowhere');
      }
    }
  },
};
