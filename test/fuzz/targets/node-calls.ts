import { isVersion } from '../../../src/base/concurrency/hybrid-clock.js';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../../src/base/limits.js';
import { keyFields } from '../../../src/directory/messages/wire.js';
import { PageNotices } from '../../../src/node/remote-pages/page-notices.js';
import { PageDrops } from '../../../src/node/upkeep/page-drops.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { memoryEnvironment } from '../memory-environment.js';
import { receivedValue, valueInput } from '../values.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const KEYS = ['page-1', 'page-2', 'page-3'];

/** A call to one of the methods by which nodes talk of pages: [method, params]. */
export const nodeCalls: Fuzzer = {
  name: 'node-calls',
  what: 'requests to drop pages, and notices of pages',
  form: 'value',
  seeds: () => {
    const { key_lengths: lengths, key_text: text } = keyFields(KEYS);
    const keys = { key_lengths: hex(lengths), key_text: hex(text) };
    return [
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
        'pool.expect',
        {
          ...keys,
          expected_counts: hex(Uint8Array.of(2, 0, 0, 0, 1, 0, 0, 0)),
          expected_ms: hex(new Uint8Array(Float64Array.of(5, Number.POSITIVE_INFINITY).buffer)),
        },
      ]),
      valueInput([
        'pages.drop',
        { ...keys, void_below: hex(new Uint8Array(Float64Array.of(0, 7, 2 ** 52).buffer)), reason: 1 },
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
    new PageNotices(parts).handle(handlers.asServer(), {
      touch(reads) {
        check(
          reads.every(({ hint }) => [0, 1, 2, 3].includes(hint as number)),
          'a hint that is none',
        );
        told.push(reads.flatMap(({ keys }) => keys));
      },
      expect(expected) {
        check(
          expected.every(({ inMs }) => inMs >= 0),
          'a time that is none',
        );
        told.push(expected.flatMap(({ keys }) => keys));
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

function hex(bytes: Uint8Array): { $bytes: string } {
  return { $bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex') };
}
