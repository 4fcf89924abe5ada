import { isDeepStrictEqual } from 'node:util';
import { stringsOf } from '../../../src/core/binding/key-batch.js';
import { DirectoryClient } from '../../../src/directory/client.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { locationFields } from '../../../src/directory/messages/wire.js';
import { NO_OWNER, type OwnerRing } from '../../../src/directory/owners/owners.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { DataLocation } from '../../../src/types.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { hexFields, receivedValue, valueInput } from '../values.js';
import { locationOf } from './directory.js';

const KEYS = ['page-1', 'page-2', 'page-3'];
/** One owner of every key. */
const RING: OwnerRing = {
  nodes: ['owner'],
  getNodesBatch: (keys, n) =>
    Uint32Array.from({ length: stringsOf(keys).length * n }, (_, i) => (i % n === 0 ? 0 : NO_OWNER)),
};

/** What an owner answers, whatever it is asked about three keys. */
export const directoryAnswers: Fuzzer = {
  name: 'directory-answers',
  what: 'answers of directory owners: a location or none, a flag a key, whatever comes',
  form: 'value',
  seeds: () => {
    const columns = LocationColumns.of(
      KEYS.map((_, i) => locationOf(i)),
      { nodeId: 'n0', incarnation: 1, generation: 7 },
    );
    return [
      valueInput(hexFields(locationFields(columns)) as never),
      valueInput({
        ...hexFields(locationFields(columns)),
        inline: { $bytes: '010000' },
        inline_bytes: { $bytes: '00' },
      } as never),
      valueInput({ found: { $bytes: '010001' }, taken: { $bytes: '000100' } }),
      valueInput({}),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const rpc = { call: async () => received.value } as unknown as RpcClient;
    const options = { nodeId: 'me', incarnation: 1, rpc, env: memoryEnvironment() };
    const client = new DirectoryClient(RING, () => ({ host: '192.0.2.9', port: 9 }), 2, options);
    const found = await client.get(KEYS);
    check(found.length === KEYS.length, `${found.length} locations`);
    for (const location of found) {
      if (location === null) continue;
      check(isDeepStrictEqual(DataLocation.fromDict(location.toDict()), location), 'a location that none can be');
    }
    await client.find(
      KEYS,
      ({ rows, columns }) => {
        for (const row of rows) {
          const bytes = columns.inline?.bytesOf(row);
          check(bytes === undefined || bytes.length === columns.length[row], 'bytes of another length');
        }
      },
      { room: 1000 },
    );
    for (const flags of [
      await client.exists(KEYS),
      await client.put(new Map(KEYS.map((key, i) => [key, locationOf(i)]))),
    ]) {
      check(flags.length === KEYS.length && flags.every((flag) => typeof flag === 'boolean'), 'no flags');
    }
    const isTaken = await client.announce(
      'owner',
      KEYS,
      KEYS.map((_, i) => locationOf(i)),
    );
    check(typeof isTaken === 'boolean', 'taken or not');
    await client.delete(KEYS);
    await client.renounce('owner', client.generation);
    client.verify();
  },
};
