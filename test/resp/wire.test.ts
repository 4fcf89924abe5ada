import test from 'ava';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import { ProtocolError } from '../../src/base/errors.js';
import { KEY_MAX_BYTES } from '../../src/base/limits.js';
import { EMPTY_VALUE, isEmptyValue, storeKeyOf } from '../../src/resp/values/resp-keys.js';
import { splitInline } from '../../src/resp/wire/inline-command.js';
import { encodeAnswer } from '../../src/resp/wire/resp-answers.js';
import { type RespArgument, RespParser } from '../../src/resp/wire/resp-parser.js';
import { systemRandom } from '../../src/system/system-random.js';
import { commandOf } from '../_support/resp/resp-fixture.js';

interface Parsing {
  readonly commands: RespArgument[][];
  readonly parser: RespParser;
  readonly reserved: number[];
  /** Bytes of small arguments for which memory was asked for. */
  readonly words: number[];
}

function parsing({
  isTrusted = true,
  reserve = 'now',
  reserveWords = 'now',
}: {
  isTrusted?: boolean;
  reserve?: 'now' | 'later' | 'drop';
  reserveWords?: 'now' | 'later';
} = {}): Parsing {
  const commands: RespArgument[][] = [];
  const reserved: number[] = [];
  const words: number[] = [];
  const parser = new RespParser({
    onCommand: (args) => commands.push(args.map((each) => each && Buffer.from(each))),
    reserve(bytes) {
      reserved.push(bytes);
      return reserve;
    },
    reserveWords(bytes) {
      words.push(bytes);
      return reserveWords;
    },
    beginLarge: () => true,
    grow: (body, bytes) => Buffer.concat([body, Buffer.alloc(bytes - body.length, 0xee)]),
    isTrusted: () => isTrusted,
  });
  return { commands, parser, reserved, words };
}

function seeded(t: { log(text: string): void }): RandomSource {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  t.log(`seed ${seed}`);
  return seededRandom(seed);
}

test('resp parser: however commands are cut into pieces, they come out the same', (t) => {
  const random = seeded(t);
  const below = (count: number): number => random.u32() % count;
  for (let round = 0; round < 200; round++) {
    const expected: Buffer[][] = [];
    const sent: Buffer[] = [];
    for (let i = 0; i <= below(6); i++) {
      const words = Array.from({ length: 1 + below(4) }, () =>
        Buffer.from(random.bytes(below(10) === 0 ? 70_000 + below(70_000) : below(30))),
      );
      expected.push(words);
      sent.push(commandOf(...words));
      if (below(4) === 0) sent.push(Buffer.from(['*0\r\n', '*-1\r\n', '\r\n', '  \n'][below(4)] as string));
    }
    const all = Buffer.concat(sent);
    const { commands, parser } = parsing();
    for (let at = 0; at < all.length; ) {
      const take = below(3) === 0 ? 1 + below(5) : 1 + below(40_000);
      const lent = Buffer.from(all.subarray(at, at + take));
      parser.receive(lent);
      lent.fill(0xee);
      at += take;
    }
    t.deepEqual(commands, expected);
    t.false(parser.isWithinCommand);
  }
});

test('resp parser: byte by byte, also the line ends', (t) => {
  const { commands, parser } = parsing();
  const all = Buffer.concat([commandOf('SET', 'k\r\n', ''), Buffer.from('PING  "a b"\r\n'), commandOf('GET', 'k')]);
  const lent = Buffer.alloc(1);
  for (const byte of all) parser.receive(Buffer.from(lent.fill(byte).buffer, lent.byteOffset, 1));
  t.deepEqual(
    commands.map((words) => words.map(String)),
    [
      ['SET', 'k\r\n', ''],
      ['PING', 'a b'],
      ['GET', 'k'],
    ],
  );
});

for (const [sent, message] of [
  ['*a\r\n', 'Protocol error: invalid multibulk length'],
  ['*99999999999\r\n', 'Protocol error: invalid multibulk length'],
  ['*1000000\r\n', 'Protocol error: invalid multibulk length'],
  ['*1\r\n*1\r\n$4\r\nPING\r\n', "Protocol error: expected '$', got '*'"],
  ['*1\r\n:5\r\n', "Protocol error: expected '$', got ':'"],
  ['*1\r\n$-1\r\n', 'Protocol error: invalid bulk length'],
  ['*1\r\n$x\r\n', 'Protocol error: invalid bulk length'],
  ['*1\r\n$536870913\r\n', 'Protocol error: invalid bulk length'],
  ['*1\r\n$4\r\nPINGXX', 'Protocol error: expected CR LF behind a bulk string'],
  ['PING "a\r\n', 'Protocol error: unbalanced quotes in request'],
  [`${'a'.repeat(70_000)}`, 'Protocol error: too big inline request'],
  [`${'a'.repeat(70_000)}\r\n`, 'Protocol error: too big inline request'],
  [`*${'1'.repeat(70_000)}`, 'Protocol error: too big mbulk count string'],
  [`*1\r\n$${'1'.repeat(70_000)}`, 'Protocol error: too big bulk count string'],
] as const) {
  test(`resp parser: refuses ${JSON.stringify(sent.slice(0, 30))}, ${sent.length} bytes: ${message}`, (t) => {
    t.throws(() => parsing().parser.receive(Buffer.from(sent)), { instanceOf: ProtocolError, message });
    t.throws(
      () => {
        const { parser } = parsing();
        for (const byte of Buffer.from(sent)) parser.receive(Buffer.of(byte));
      },
      { instanceOf: ProtocolError, message },
    );
  });
}

test('resp parser: a stranger may send short commands only', (t) => {
  const long = commandOf('AUTH', Buffer.alloc(16 * 1024 + 1));
  const many = commandOf(...Array.from({ length: 11 }, () => 'a'));
  t.throws(() => parsing({ isTrusted: false }).parser.receive(long), { message: /unauthenticated bulk length/ });
  t.throws(() => parsing({ isTrusted: false }).parser.receive(many), { message: /unauthenticated multibulk length/ });
  const { commands, parser } = parsing({ isTrusted: false });
  parser.receive(commandOf('AUTH', 'x'));
  t.is(commands.length, 1);
});

test('resp parser: a large argument waits for memory, or is dropped, and the next command is found', (t) => {
  const all = Buffer.concat([commandOf('SET', 'k', Buffer.alloc(100_000, 7)), commandOf('PING')]);
  const pieces = [all.subarray(0, 50), all.subarray(50, 60_000), all.subarray(60_000)];
  const waiting = parsing({ reserve: 'later' });
  for (const piece of pieces) waiting.parser.receive(piece);
  t.is(waiting.commands.length, 0);
  t.is(waiting.reserved.length, 1);
  waiting.parser.resume();
  t.deepEqual(waiting.commands[0]?.[2], Buffer.alloc(100_000, 7));
  t.is(waiting.commands.length, 2);
  const dropping = parsing({ reserve: 'drop' });
  for (const piece of pieces) dropping.parser.receive(piece);
  t.is(dropping.commands[0]?.[2], null);
  t.is(dropping.commands.length, 2);
});

test('resp inline: words, quotes and escapes as Redis has them', (t) => {
  const split = (text: string) => splitInline(Buffer.from(text))?.map((word) => word.toString('latin1'));
  t.deepEqual(split('set  a\tb '), ['set', 'a', 'b']);
  t.deepEqual(split(`'a b' "c\\x00\\n\\"d" ''`), ['a b', 'c\0\n"d', '']);
  t.deepEqual(split(`'it\\'s'`), ["it's"]);
  t.deepEqual(split(''), []);
  for (const wrong of ['"a', `'a`, '"a"b', `'a'b`, '"a\\']) t.is(split(wrong), undefined, wrong);
});

test('resp answers: RESP2 and RESP3', (t) => {
  const value = { map: [['a', 1] as const, ['b', { set: ['x'] }] as const, ['c', null] as const] };
  t.is(encodeAnswer(value, 2).toString(), '*6\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*1\r\n$1\r\nx\r\n$1\r\nc\r\n$-1\r\n');
  t.is(encodeAnswer(value, 3).toString(), '%3\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n~1\r\n$1\r\nx\r\n$1\r\nc\r\n_\r\n');
  t.is(encodeAnswer({ verbatim: 'hi' }, 3).toString(), '=6\r\ntxt:hi\r\n');
  t.is(encodeAnswer({ verbatim: 'hi' }, 2).toString(), '$2\r\nhi\r\n');
  t.is(
    encodeAnswer([{ status: 'a' }, 'ü', Buffer.of(0)], 2).toString('latin1'),
    '*3\r\n+a\r\n$2\r\nÃ¼\r\n$1\r\n\0\r\n',
  );
});

test('resp keys: different keys have different texts, and none is too long', (t) => {
  const random = seeded(t);
  const keys = [
    ...['', 'a', '\u0001', '\u0001b', '\u0001bAQ', '\u0001h', 'ü', '\0', 'a\r\n'].map((text) => Buffer.from(text)),
    Buffer.of(1),
    Buffer.of(0xff),
    Buffer.of(0xfe),
    Buffer.from('\ufffd'),
    Buffer.alloc(KEY_MAX_BYTES, 'a'),
    Buffer.alloc(KEY_MAX_BYTES + 1, 'a'),
    Buffer.alloc(KEY_MAX_BYTES, 0xff),
    Buffer.alloc(KEY_MAX_BYTES - 1, 0xff),
    Buffer.alloc(49_150, 0xff),
    Buffer.alloc(49_149, 0xff),
    Buffer.alloc(200_000, 0xff),
    ...Array.from({ length: 300 }, () => Buffer.from(random.bytes(random.u32() % 20))),
  ];
  const texts = new Map<string, Buffer>();
  for (const key of keys) {
    const text = storeKeyOf(key);
    t.true(Buffer.byteLength(text) <= KEY_MAX_BYTES && text.isWellFormed());
    t.true(texts.get(text)?.equals(key) !== false, `${key.toString('hex')} and another have one text`);
    texts.set(text, key);
  }
  t.is(storeKeyOf(Buffer.from('greeting')), 'greeting');
  t.true(isEmptyValue(Buffer.from(EMPTY_VALUE)));
});

test('resp: a command of many words, or of many that are not small and came whole, asks for memory, and waits for it', (t) => {
  // Cause: half a command of 131,000 words took 9 MB that nobody counted, and so did each of 500 connections.
  const few = parsing();
  few.parser.receive(Buffer.from(`*3\r\n${'$1\r\nx\r\n'.repeat(3)}`));
  t.deepEqual([few.commands.length, few.words], [1, []]);
  const text = `*2000\r\n${'$1\r\nx\r\n'.repeat(2000)}`;
  const many = parsing();
  many.parser.receive(Buffer.from(text.repeat(3)));
  t.deepEqual([many.commands.length, many.words.length], [3, 3], 'each command for itself');
  const large = parsing();
  large.parser.receive(Buffer.from(`*9\r\n${`$40000\r\n${'y'.repeat(40_000)}\r\n`.repeat(8)}`));
  t.deepEqual([large.reserved, large.words.length], [[], 1]);
  const waiting = parsing({ reserveWords: 'later' });
  waiting.parser.receive(Buffer.from(text));
  waiting.parser.receive(Buffer.from('*1\r\n$4\r\nPING\r\n'));
  t.deepEqual([waiting.commands, waiting.words.length], [[], 1]);
  waiting.parser.resume();
  t.deepEqual(
    waiting.commands.map((args) => args.length),
    [2000, 1],
  );
});
