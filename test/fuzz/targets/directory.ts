import { isDeepStrictEqual } from 'node:util';
import { ProtocolError } from '../../../src/base/errors.js';
import { DIRECTORY_KEY_MAX_BYTES, DIRECTORY_REQUEST_MAX_KEYS } from '../../../src/base/limits.js';
import { decodeKeys, encodeKeys } from '../../../src/directory/messages/key-column.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { DataLocation } from '../../../src/types.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';

/** [count: u8][lengths: u32 little endian each][text] */
export const keyColumns: Fuzzer = {
  name: 'key-columns',
  what: 'keys as they travel',
  form: 'bytes',
  tokens: [
    '00000000',
    '01000000',
    '00040100',
    '01040100',
    'ffffffff',
    'c3a9',
    'f09f9982',
    'eda080',
    'efbbbf',
    'c0af',
    'f4908080',
  ].map((hex) => Buffer.from(hex, 'hex')),
  seeds: () => [['a', 'bc', ''], ['é', '🙂x', '\ufeff'], ['k'.repeat(300)], []].map(columnInput),
  allocationMaxBytes: (inputBytes) => 8 * inputBytes + 16_384,
  run(input) {
    const lengthBytes = (input[0] ?? 0) * 4;
    const column = { lengths: input.subarray(1, 1 + lengthBytes), text: input.subarray(1 + lengthBytes) };
    const owned = unlessRefused([ProtocolError], () => decodeKeys(column, true))?.value;
    const shared = unlessRefused([ProtocolError], () => decodeKeys(column, false))?.value;
    check(isDeepStrictEqual(owned, shared), 'other keys when they are to be kept');
    if (owned === undefined) return;
    check(
      owned.every((key) => Buffer.byteLength(key) <= DIRECTORY_KEY_MAX_BYTES),
      'too long a key',
    );
    const again = encodeKeys(owned);
    check(
      Buffer.compare(again.lengths, column.lengths) === 0 && Buffer.compare(again.text, column.text) === 0,
      'other bytes out of the same keys',
    );
  },
};

function columnInput(keys: readonly string[]): Buffer {
  const { lengths, text } = encodeKeys(keys);
  return Buffer.concat([Buffer.from([keys.length]), lengths, text]);
}

export type DecodeColumns = (bytes: unknown, nodes: unknown) => LocationColumns;

/** [nodes: u8][columns]: the columns of locations as they travel, with a table of so many nodes. */
export function locationColumnFuzzer(name: string, decode: DecodeColumns): Fuzzer {
  return {
    name,
    what: 'columns of locations as they travel',
    form: 'bytes',
    tokens: [
      'ffffffff',
      '00000000',
      '01000000',
      '02000000',
      '000000000000f03f',
      '000000000000f0ff',
      '000000000000e03f',
    ].map((hex) => Buffer.from(hex, 'hex')),
    seeds: () =>
      [1, 2, 5].map((count) => {
        const columns = LocationColumns.of(
          Array.from({ length: count }, (_, i) => locationOf(i)),
          { nodeId: 'n0', incarnation: 1, generation: 7 },
        );
        return Buffer.concat([Buffer.from([columns.nodes.length]), columns.bytes]);
      }),
    allocationMaxBytes: (inputBytes) => 8 * inputBytes + 16_384,
    run(input) {
      const nodes = Array.from({ length: input[0] ?? 0 }, (_, i) => [`n${i}`, i, `h:${i}`]);
      const bytes = input.subarray(1);
      const columns = unlessRefused([ProtocolError], () => decode(bytes, nodes))?.value;
      if (columns === undefined) return;
      check(
        columns.count <= DIRECTORY_REQUEST_MAX_KEYS && columns.count * 73 === bytes.length,
        'another number of locations',
      );
      // A location whose version is none is left out.
      const nodesAt = 64 * columns.count;
      const isWhole = Buffer.compare(columns.bytes.subarray(nodesAt), bytes.subarray(nodesAt)) === 0;
      check(!isWhole || Buffer.compare(columns.bytes, bytes) === 0, 'other bytes than came');
      checkLocations(columns);
    },
  };
}

/** What is not absent is a location with a node of the table, as one that is sent alone would be. */
export function checkLocations(columns: LocationColumns): void {
  for (let i = 0; i < columns.count; i++) {
    const isAbsent = columns.node[i] === 0xffffffff;
    const location = columns.locationAt(i);
    check((location === null) === isAbsent, `location ${i} has node ${columns.node[i]} of ${columns.nodes.length}`);
    if (location !== null)
      check(isDeepStrictEqual(DataLocation.fromDict(location.toDict()), location), `location ${i}`);
  }
}

export const locationColumns = locationColumnFuzzer('location-columns', (bytes, nodes) =>
  LocationColumns.decode(bytes, nodes),
);

export function locationOf(i: number): DataLocation {
  return new DataLocation({
    nodeId: `n${i % 2}`,
    rdmaEndpoint: `h:${i % 2}`,
    remoteAddr: BigInt(2 ** 40 + i * 4096),
    rkey: i,
    length: 4096,
    checksum: 2 ** 32 - 1 - i,
    incarnation: (i % 2) + 1,
    generation: i,
    tier: i % 3 === 2 ? 'disk' : 'memory',
  });
}
