import test from 'ava';
import fc from 'fast-check';
import { Packr } from 'msgpackr';
import { RPC_MESSAGE_MAX_DEPTH } from '../../src/base/limits.js';
import { MessageCodec } from '../../src/rpc/message.js';

const codec = new MessageCodec();
const refused = { code: 'ERR_PROTOCOL' };

test('message: what is encoded is decoded', (t) => {
  const value = {
    nothing: null,
    yes: true,
    small: 7,
    negative: -129,
    large: 2 ** 53 - 1,
    fraction: 0.25,
    text: 'ключ 🗝 \ud83d\udddd',
    long: 'x'.repeat(70_000),
    list: [1, [2, [3]], {}],
    bytes: new Uint8Array([0, 255, 1]),
  };
  const decoded = codec.decode(codec.encode(value)) as typeof value;
  t.deepEqual({ ...decoded, bytes: [...decoded.bytes] }, { ...value, bytes: [0, 255, 1] } as never);
});

test('message: the reserved bytes lie in front of it', (t) => {
  const bytes = codec.encode({ a: 1 }, 9);
  t.deepEqual(codec.decode(bytes.subarray(9)), { a: 1 });
});

test('message: extension types are refused, whatever they would become', (t) => {
  const structured = new Packr({ structuredClone: true, moreTypes: true });
  for (const value of [new Date(), new Set([1]), /a/, new Error('x'), new Float64Array(2), [undefined]]) {
    t.throws(() => codec.decode(structured.pack(value)), refused);
  }
  for (const token of [0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8]) {
    t.throws(() => codec.decode(Buffer.concat([Buffer.from([token]), Buffer.alloc(18)])), refused);
  }
  t.throws(() => codec.decode(Buffer.from([0xc1])), refused);
});

test('message: __proto__ as a key is refused, and no prototype is touched', (t) => {
  const bytes = Buffer.concat([
    Buffer.from([0x81, 0xa9]),
    Buffer.from('__proto__'),
    Buffer.from([0x81, 0xa1, 0x78, 0x01]),
  ]);
  t.throws(() => codec.decode(bytes), refused);
  t.is(({} as { x?: number }).x, undefined);
});

test('message: map keys that are not text are refused', (t) => {
  t.throws(() => codec.decode(Buffer.from([0x81, 0x01, 0x01])), refused);
});

test('message: promised lengths that are not there are refused before anything is allocated', (t) => {
  for (const head of [0xdd, 0xdf, 0xc6, 0xdb]) {
    t.throws(() => codec.decode(Buffer.from([head, 0xff, 0xff, 0xff, 0xff, 0])), refused);
  }
});

test('message: nesting is bounded', (t) => {
  const nested = (depth: number): Buffer => Buffer.concat([Buffer.alloc(depth, 0x91), Buffer.from([0xc0])]);
  t.notThrows(() => codec.decode(nested(RPC_MESSAGE_MAX_DEPTH)));
  t.throws(() => codec.decode(nested(RPC_MESSAGE_MAX_DEPTH + 1)), refused);
  t.throws(() => codec.decode(nested(1_000_000)), refused);
});

test('message: bytes left over and truncated messages are refused', (t) => {
  const bytes = codec.encode({ key: 'value', list: [1, 2, 3], data: new Uint8Array(40) });
  for (let length = 0; length < bytes.length; length++) {
    t.throws(() => codec.decode(bytes.subarray(0, length)), refused);
  }
  t.throws(() => codec.decode(Buffer.concat([bytes, Buffer.from([0])])), refused);
});

test('message: random bytes are a value or an error of the protocol, nothing else', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      try {
        codec.decode(bytes);
      } catch (error) {
        t.is((error as { code?: string }).code, 'ERR_PROTOCOL');
      }
    }),
    { numRuns: 5_000 },
  );
  t.pass();
});
