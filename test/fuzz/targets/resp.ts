import { isDeepStrictEqual } from 'node:util';
import { ByteBudget } from '../../../src/base/concurrency/byte-budget.js';
import { WorkTurns } from '../../../src/base/concurrency/work-turns.js';
import { SparseLog } from '../../../src/base/environment/sparse-log.js';
import { ProtocolError } from '../../../src/base/errors.js';
import { type Keys, stringsOf } from '../../../src/core/binding/key-batch.js';
import { KeyEncoder } from '../../../src/core/index.js';
import { ServedConnections } from '../../../src/net/served/served-connections.js';
import { Users } from '../../../src/net/users.js';
import { RespAccess } from '../../../src/resp/access/resp-access.js';
import { RespUsers } from '../../../src/resp/access/resp-users.js';
import type { RespFacts } from '../../../src/resp/commands/command.js';
import { COMMANDS } from '../../../src/resp/commands/command-table.js';
import { RespConnection } from '../../../src/resp/resp-connection.js';
import { RespCounts } from '../../../src/resp/resp-counts.js';
import { respLimits, servedLimits } from '../../../src/resp/resp-limits.js';
import type { RespServer } from '../../../src/resp/resp-server.js';
import { ValueMemory } from '../../../src/resp/values/value-memory.js';
import { type RespArgument, RespParser } from '../../../src/resp/wire/resp-parser.js';
import { StoredPages } from '../../../src/store/namespace/namespace-pages.js';
import type { PageStore } from '../../../src/store/page-store.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';

/** A larger argument is dropped, as the pool is no larger than this. */
const POOL_BYTES = 70_000;

function command(...words: string[]): Buffer {
  const bulks = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return Buffer.from(`*${words.length}\r\n${bulks.join('')}`);
}

const SESSION: readonly Buffer[] = [
  command('SET', 'k', 'v'),
  command('GET', 'k'),
  command('MSET', 'a', '1', 'b', '2'),
  command('MGET', 'a', 'b', 'none'),
  command('EXISTS', 'k', 'k'),
  command('DEL', 'k'),
  command('STRLEN', 'k'),
  command('HELLO', '3', 'SETNAME', 'me'),
  command('CLIENT', 'SETINFO', 'LIB-NAME', 'x'),
  command('CONFIG', 'GET', '*'),
  command('COMMAND', 'DOCS', 'get'),
  command('INFO'),
  command('DBSIZE'),
  command('FLUSHDB'),
  command('AUTH', 'x'),
  command('NOTHING', 'a'),
  Buffer.from('PING "a\\x00" b\r\n\r\n*0\r\n*-1\r\n'),
  command('ECHO', ''),
  command('RESET'),
  Buffer.concat([Buffer.from('*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$65600\r\n'), Buffer.alloc(100)]),
];
const TOKENS = [
  ...SESSION,
  ...[...COMMANDS.keys()].map((name) => command(name, 'a')),
  command('QUIT'),
  ...['*', '$', '\r\n', '$-1\r\n', '*1\r\n'].map((text) => Buffer.from(text)),
];

interface Parsed {
  readonly commands: (RespArgument[] | null)[];
  readonly error: string | undefined;
}

/** The commands in the pieces, and the error at which they end. */
function parse(pieces: readonly Buffer[]): Parsed {
  const commands: RespArgument[][] = [];
  const parser = new RespParser({
    onCommand: (args) => commands.push(args),
    reserve: () => 'now',
    reserveWords: () => 'now',
    beginLarge: (bytes) => bytes <= POOL_BYTES,
    grow: (body, bytes) => Buffer.concat([body], bytes),
    isTrusted: () => true,
  });
  try {
    for (const piece of pieces) {
      const lent = Buffer.from(piece);
      parser.receive(lent);
      lent.fill(0xee);
    }
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { commands, error: error.message };
  }
  return { commands, error: undefined };
}

/** A stream of commands, cut into pieces as the first byte says. */
export const respCommands: Fuzzer = {
  name: 'resp-commands',
  what: 'commands of Redis clients: the same however they are cut into pieces, and again when they are written as arrays',
  form: 'bytes',
  tokens: TOKENS,
  seeds: () => [0, 1, 7, 150].map((mode) => inPieces(mode, ...SESSION)),
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 2 * POOL_BYTES,
  run(input) {
    const { stream, pieces } = piecesOf(input);
    const whole = parse([stream]);
    const cut = parse(pieces);
    check(isDeepStrictEqual(cut, whole), 'other commands when they come in pieces');
    const written = whole.commands
      .filter((args) => args?.every((argument) => argument !== null))
      .map((args) => {
        const words = args as Buffer[];
        const bulks = words.flatMap((word) => [Buffer.from(`$${word.length}\r\n`), word, Buffer.from('\r\n')]);
        return Buffer.concat([Buffer.from(`*${words.length}\r\n`), ...bulks]);
      });
    const again = parse([Buffer.concat(written)]);
    check(again.error === undefined && again.commands.length === written.length, 'not the same when written again');
  },
};

const env = memoryEnvironment();
const lengthOf = (key: string): number | null => (key.length % 3 === 0 ? null : key.length);
/** A store that has two of three keys. */
const store = {
  exists: async (keys: Keys) => stringsOf(keys).map((key) => lengthOf(key) !== null),
  get: async (keys: Keys) => stringsOf(keys).map((key) => key.length % 5 !== 0),
  set: async (keys: Keys) => stringsOf(keys).map((key) => key.length % 2 === 0),
  delete: async (keys: readonly string[]) => keys.map((key) => key.length % 7 !== 0),
  clear: async () => {},
  lengthsHere: (keys: Keys) => stringsOf(keys).map(lengthOf),
  find: async (keys: readonly string[]) => ({
    lengthOf: (i: number) => lengthOf(keys[i] as string),
    read: async (indices: readonly number[], pages: readonly { readonly length: number }[]) =>
      // Some values are gone, shorter or longer when they are read.
      indices.map((i, j) => {
        const { length } = pages[j] as { readonly length: number };
        return i % 5 === 4 ? null : length + ([0, -1, 1][i % 3] as number);
      }),
  }),
  remainingMs: async (keys: readonly string[]) => keys.map(lengthOf),
  serve: async (keys: readonly string[]) => keys.map(() => null),
  async *keysInSlices() {
    yield ['a', 'b'];
  },
} as unknown as PageStore;

const facts: RespFacts = {
  nodeId: 'node',
  packageVersion: '0',
  processId: 1,
  port: 1,
  uptimeS: () => 1,
  dateMs: () => 1,
  clients: () => 1,
  commands: () => 1,
  poolUsedBytes: () => 1,
  poolCapacityBytes: () => POOL_BYTES,
  poolEntries: () => 1,
};

/** Reads one answer; returns the position behind it, -1 if it is not whole or not well-formed. */
function endOfAnswer(bytes: Buffer, at: number): number {
  const end = bytes.indexOf('\r\n', at);
  if (end < 0) return -1;
  const kind = String.fromCharCode(bytes[at] as number);
  const count = Number(bytes.toString('latin1', at + 1, end));
  if ('+-_'.includes(kind)) return end + 2;
  if (!Number.isInteger(count) || (count < -1 && kind !== ':')) return -1;
  if (kind === ':' || count === -1) return end + 2;
  if (kind === '$' || kind === '=') {
    const after = end + 2 + count;
    return bytes.toString('latin1', after, after + 2) === '\r\n' ? after + 2 : -1;
  }
  if (!'*%~'.includes(kind)) return -1;
  let next = end + 2;
  for (let i = 0; i < (kind === '%' ? 2 * count : count) && next >= 0; i++) next = endOfAnswer(bytes, next);
  return next;
}

function countAnswers(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at < bytes.length; count++) {
    at = endOfAnswer(bytes, at);
    check(at >= 0, 'an answer that is not well-formed');
  }
  return count;
}

/** A whole connection over a store that answers at once. */
export const respConnection: Fuzzer = {
  name: 'resp-connection',
  what: 'a connection of a Redis client: every command has one answer, and nothing is left of it',
  form: 'bytes',
  tokens: TOKENS,
  seeds: () =>
    [0, 1, 7, 150].flatMap((mode) => [inPieces(mode, ...SESSION), inPieces(mode, command('QUIT'), ...SESSION)]),
  allocationMaxBytes: (inputBytes) => 256 * inputBytes + 2 ** 20,
  async run(input) {
    const { stream, pieces } = piecesOf(input);
    const socket = new MemorySocket();
    const budget = new ByteBudget(2 ** 20);
    let endedCount = 0;
    const encoder = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false });
    const valuesBudget = new ByteBudget(2 ** 27);
    const memory = new ValueMemory();
    const users = new RespUsers({
      users: new Users(),
      password: undefined,
      nodeTag: '',
      pagesOf: () => new StoredPages(store, encoder),
      memory: { memory, budget: valuesBudget },
      env,
    });
    const limits = respLimits({ waitingMaxCount: 8, waitingMaxBytes: 2048 });
    const turns = new WorkTurns(env.clock);
    const pauses = { sentAfterMs: () => env.clock.nowMs() };
    const connections = new ServedConnections<RespConnection>(env.clock, servedLimits(limits), { turns, pauses });
    const door = {
      env,
      connections,
      limits,
      budget,
      memory,
      valuesBudget,
      facts,
      counts: new RespCounts(env.metrics, []),
      turns,
      lines: new SparseLog(env),
      replaced: () => {},
      ended: () => {
        endedCount++;
      },
    } as Partial<RespServer> as RespServer;
    const access = new RespAccess(users, { from: 'here', actor: {} });
    const connection = new RespConnection(socket, door, { id: 1, origin: { one: 'here', group: 'port' }, access });
    connections.add(connection);
    await socket.feed(pieces);
    for (let i = 0; i < 8; i++) await turn();
    connections.verify('fuzz');
    const { commands, error } = parse([stream]);
    const isQuit = (args: RespArgument[] | null): boolean => args?.[0]?.toString('latin1').toLowerCase() === 'quit';
    const quit = commands.findIndex(isQuit);
    const expected = quit >= 0 ? quit + 1 : commands.length + Number(error !== undefined);
    const count = countAnswers(socket.sent);
    check(count === expected, () => `${count} answers to ${expected} commands`);
    await socket.hangUp();
    for (let i = 0; i < 4; i++) await turn();
    check(connection.isClosed && endedCount === 1, 'a connection that has not ended, or twice');
    connections.verify('fuzz');
    budget.verify();
    check(connections.unendedCount === 0, 'an ended connection is still counted');
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};
