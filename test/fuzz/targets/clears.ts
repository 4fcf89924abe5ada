import { isVersion } from '../../../src/base/concurrency/hybrid-clock.js';
import { CLEAR_MAX_PREFIXES, CLEARS_REQUEST_MAX_COUNT } from '../../../src/base/limits.js';
import { type Clear, KnownClears } from '../../../src/directory/shard/known-clears.js';
import { Clears } from '../../../src/node/upkeep/clears.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { memoryEnvironment } from '../memory-environment.js';
import { receivedValue, valueInput } from '../values.js';

/** Versions from here on are too far ahead. */
const FAR = 2 ** 50;

/** Params of a request that tells of clears. */
export const clearCalls: Fuzzer = {
  name: 'clear-calls',
  what: 'requests that tell of clears',
  form: 'value',
  seeds: () => [
    valueInput({
      clears: [
        [7, 10, null],
        [7, 9, ['a/', 'b/']],
        [0, 3, null],
        [2 ** 32 - 1, 11, ['']],
      ],
    }),
    valueInput({
      clears: [
        [7, FAR, null],
        [8, 1, ['a/']],
      ],
    }),
    valueInput({ clears: [[7, 10, new Array<string>(CLEAR_MAX_PREFIXES + 1).fill('x')]] }),
    valueInput({ clears: Array.from({ length: CLEARS_REQUEST_MAX_COUNT + 1 }, (_, i) => [i, 10, null]) }),
  ],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const handlers = new Handlers();
    const dropped: Clear[] = [];
    const clears = new Clears({
      nodeId: 'me',
      known: new KnownClears(),
      rpc: {} as RpcClient,
      env: memoryEnvironment(),
      endpointOf: () => undefined,
      members: () => new Map(),
      see: (version) => check(isVersion(version), `version ${version}`),
      isAhead: (version) => version >= FAR,
      dropUndated: async () => {},
      settleMs: 1_000,
    });
    clears.handle(handlers.asServer(), async (some) => void dropped.push(...some));
    await handlers.call('pages.clear', received.value);
    for (const { origin, voidBelow, prefixes } of dropped) {
      check(origin >>> 0 === origin && isVersion(voidBelow) && voidBelow < FAR, `origin ${origin} below ${voidBelow}`);
      check(prefixes?.every((prefix) => typeof prefix === 'string') !== false, 'a prefix that is no text');
    }
    check(
      [...clears.known].every(({ voidBelow }) => voidBelow < FAR),
      'a clear of a wrong clock is remembered',
    );
    clears.verify();
    clears.stop();
  },
};
