import { isVersion } from '../../../src/base/concurrency/hybrid-clock.js';
import { PLACEMENT_REQUEST_MAX_KEYS } from '../../../src/base/limits.js';
import { keyFields } from '../../../src/directory/messages/wire.js';
import { PlacementCalls } from '../../../src/node/placing/placement-calls.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { hexFields, receivedValue, valueInput } from '../values.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const KEYS = ['page-1', 'page-2', 'page-3'];
const PAGE_BYTES = 29;

/** A call to a storage node: [method, params]. */
export const placementCalls: Fuzzer = {
  name: 'placement-calls',
  what: 'requests to take pages of other nodes',
  form: 'value',
  seeds: () => {
    const take = (keys: readonly string[]) => {
      const pages = new Uint8Array(PAGE_BYTES * keys.length);
      const view = new DataView(pages.buffer);
      keys.forEach((_, i) => {
        view.setFloat64(8 * i, 4096, true);
      });
      return ['placement.take', hexFields({ ...keyFields(keys), pages, placer: 'engine' })];
    };
    return [
      valueInput(take(KEYS) as never),
      valueInput(take(new Array<string>(PLACEMENT_REQUEST_MAX_KEYS + 1).fill('k')) as never),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (!Array.isArray(received?.value)) return;
    const [method, params] = received.value as unknown[];
    const handlers = new Handlers();
    let requests = 0;
    new PlacementCalls({ rpc: {} as RpcClient, endpointOf: () => ENDPOINT }).handle(handlers.asServer(), {
      async take({ placer, pages }) {
        requests++;
        check(placer !== '' && pages.length <= PLACEMENT_REQUEST_MAX_KEYS, `${pages.length} pages of ${placer}`);
        for (const { key, length, version, expires, checksum, kind } of pages) {
          check(typeof key === 'string' && Number.isSafeInteger(length) && length > 0, `a page of ${length} bytes`);
          check(isVersion(version) && isVersion(expires) && checksum >>> 0 === checksum, 'numbers that are none');
          check(kind === 'named' || kind === 'computed', `kind ${kind}`);
        }
        return new Uint8Array(pages.length);
      },
    });
    const answer = await handlers.call(method, params);
    check(requests === Number(answer !== undefined), 'refused, and yet done; or the other way round');
  },
};

/** What a storage node answers when it was asked to take three pages. */
export const placementAnswers: Fuzzer = {
  name: 'placement-answers',
  what: 'answers of storage nodes: one outcome a page, whatever comes',
  form: 'value',
  seeds: () => [valueInput({ outcomes: { $bytes: '010004' } }), valueInput({ outcomes: { $bytes: '01' } })],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const rpc = { call: async () => received.value } as unknown as RpcClient;
    const pages = KEYS.map((key) => ({ key, length: 1, checksum: 0, version: 1, kind: 'named' as const, expires: 0 }));
    const calls = new PlacementCalls({ rpc, endpointOf: () => ENDPOINT });
    const outcomes = await calls.take('storage', { placer: 'me', pages }, 1000);
    check(outcomes === undefined || outcomes.length === KEYS.length, `${outcomes?.length} outcomes`);
  },
};
