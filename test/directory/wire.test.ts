import test from 'ava';
import fc from 'fast-check';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../src/base/limits.js';
import { decodeKeys, encodeKeys } from '../../src/directory/messages/key-column.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { columnsOf, locationOf } from '../_support/directory/locations.js';

const refused = { code: 'ERR_PROTOCOL' };

test('keys: any well-formed text comes back as it was', (t) => {
  const text = fc.string({ unit: 'binary', maxLength: 40 });
  fc.assert(
    fc.property(fc.array(text, { maxLength: 50 }), fc.boolean(), (keys, owned) => {
      t.deepEqual(decodeKeys(encodeKeys(keys), owned), keys);
    }),
  );
});

test('keys: those that differ only in a byte-order mark stay different', (t) => {
  const long = 'x'.repeat(80);
  const keys = [long, `\ufeff${long}`, `\ufeff\ufeff${long}`, '\ufeff', ''];
  t.deepEqual(decodeKeys(encodeKeys(keys), true), keys);
});

test('keys: a lone surrogate is refused, it has no UTF-8 of its own', (t) => {
  t.throws(() => encodeKeys(['a\ud800', '\udc00b']), { code: 'ERR_ARGUMENT' });
});

test('keys: columns that do not fit together are refused', (t) => {
  const good = encodeKeys(['ab', 'ключ']);
  const lengths = (...values: number[]): Uint8Array => new Uint8Array(new Uint32Array(values).buffer);
  t.throws(() => decodeKeys({ ...good, lengths: good.lengths.subarray(1) }, false), refused);
  t.throws(() => decodeKeys({ ...good, lengths: lengths(2, 7) }, false), refused);
  t.throws(() => decodeKeys({ ...good, lengths: lengths(3, 7) }, false), refused);
  t.throws(() => decodeKeys({ ...good, lengths: lengths(0xffffffff, 11) }, false), refused);
  t.throws(() => decodeKeys({ lengths: lengths(1), text: new Uint8Array([0xff]) }, false), refused);
  const many = new Uint8Array((DIRECTORY_REQUEST_MAX_KEYS + 1) * 4);
  t.throws(() => decodeKeys({ lengths: many, text: new Uint8Array(0) }, false), refused);
});

test('locations: come back as they were, from unaligned bytes too', (t) => {
  const locations = [locationOf(), locationOf({ nodeId: 'n2', tier: 'disk', remoteAddr: 0n, length: 0 }), locationOf()];
  const columns = columnsOf(...locations);
  t.is(columns.nodes.length, 2);
  const unaligned = new Uint8Array(columns.bytes.length + 3);
  unaligned.set(columns.bytes, 3);
  const decoded = LocationColumns.decode(unaligned.subarray(3), columns.nodesToWire());
  t.deepEqual(
    [0, 1, 2].map((i) => decoded.locationAt(i)),
    locations,
  );
});

test('locations: a picked part is the same as one made of that part', (t) => {
  const locations = Array.from({ length: 5 }, (_, i) => locationOf({ rkey: i, remoteAddr: BigInt(i) << 40n }));
  const picked = columnsOf(...locations).pick([4, 1]);
  t.deepEqual([picked.locationAt(0), picked.locationAt(1)], [locations[4], locations[1]] as never);
});

test('locations: what is out of range is refused at the sender', (t) => {
  for (const bad of [
    { remoteAddr: -1n },
    { remoteAddr: 2n ** 64n },
    { rkey: -1 },
    { rkey: 2 ** 32 },
    { checksum: 0.5 },
    { length: Number.NaN },
    { length: -1 },
    { generation: -1 },
    { nodeId: '' },
    { nodeId: 'x'.repeat(300) },
  ]) {
    t.throws(() => columnsOf(locationOf(bad)), { code: 'ERR_ARGUMENT' }, JSON.stringify(Object.keys(bad)));
  }
});

test('locations: what is out of range is refused at the receiver', (t) => {
  const spoilt = (spoil: (columns: LocationColumns) => void): Uint8Array => {
    const columns = columnsOf(locationOf());
    spoil(columns);
    return columns.bytes;
  };
  const nodes = columnsOf(locationOf()).nodesToWire();
  for (const bytes of [
    spoilt((columns) => columns.node.fill(1)),
    spoilt((columns) => columns.length.fill(Number.NaN)),
    spoilt((columns) => columns.length.fill(-1)),
    spoilt((columns) => columns.generation.fill(1.5)),
    spoilt((columns) => columns.flags.fill(8)),
    new Uint8Array(36),
    'text',
    null,
  ]) {
    t.throws(() => LocationColumns.decode(bytes, nodes), refused);
  }
  const good = columnsOf(locationOf()).bytes;
  for (const bad of [null, [null], [['n']], [['n', 1, 2]], [['', 1, 'e']], [['n', -1, 'e']], [[7, 1, 'e']]]) {
    t.throws(() => LocationColumns.decode(good, bad), refused);
  }
});
