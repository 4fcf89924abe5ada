import { isDeepStrictEqual } from 'node:util';
import { ByteBudget } from '../../../src/base/concurrency/byte-budget.js';
import { Shares } from '../../../src/base/concurrency/shares.js';
import { WorkTurns } from '../../../src/base/concurrency/work-turns.js';
import { SparseLog } from '../../../src/base/environment/sparse-log.js';
import { ProtocolError } from '../../../src/base/errors.js';
import { ClientConnection } from '../../../src/clients/client-connection.js';
import { clientLimits, servedLimits } from '../../../src/clients/client-limits.js';
import type { ClientServer } from '../../../src/clients/client-server.js';
import { AbsentBudget } from '../../../src/clients/requests/absent-memory.js';
import { ClientAccess } from '../../../src/clients/requests/client-access.js';
import { ClientNamespace } from '../../../src/clients/requests/client-namespace.js';
import { ClientCounts } from '../../../src/clients/requests/client-stats.js';
import {
  decodeEndPins,
  decodePin,
  decodePrefetch,
  decodeTell,
  encodeEndPins,
  encodePin,
  encodePrefetch,
  encodeTell,
} from '../../../src/clients/wire/care-messages.js';
import {
  decodeEvents,
  decodeEventsAnswer,
  encodeEvents,
  encodeEventsAnswer,
} from '../../../src/clients/wire/events.js';
import { decodeLookups, encodeLookups } from '../../../src/clients/wire/lookup-messages.js';
import {
  decodeBytesAnswer,
  decodeDescriptorRequest,
  decodeExists,
  decodeFile,
  decodeHeader,
  decodeHello,
  decodeHelloAnswer,
  decodeKeyRequest,
  decodePools,
  decodeRegionRequest,
  decodeSetBytes,
  encodeBytesAnswer,
  encodeDescriptorRequest,
  encodeExists,
  encodeFile,
  encodeHeader,
  encodeHello,
  encodeHelloAnswer,
  encodeKeyRequest,
  encodePools,
  encodeRegionRequest,
  encodeSetBytes,
  FRAME_HEADER_BYTES,
  RequestType,
  Status,
} from '../../../src/clients/wire/messages.js';
import {
  decodeGetStaged,
  decodeStagedAnswer,
  encodeGetStaged,
  encodeStagedAnswer,
} from '../../../src/clients/wire/page-messages.js';
import { RequestError } from '../../../src/clients/wire/request-error.js';
import { type Keys, stringsOf } from '../../../src/core/binding/key-batch.js';
import { KeyEncoder } from '../../../src/core/index.js';
import { ServedConnections } from '../../../src/net/served/served-connections.js';
import { type Identity, Users } from '../../../src/net/users.js';
import type { PageEvent } from '../../../src/store/events/page-events.js';
import { StoredPages } from '../../../src/store/namespace/namespace-pages.js';
import type { PageStore } from '../../../src/store/page-store.js';
import { ended, type Whole, whole } from '../../_support/clients/received.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';

const NAMESPACE = { modelName: 'm', tag: 't', tpRank: 1, tpSize: 2, ppRank: 0, ppSize: 1, isMlaModel: false };
const HELLO = encodeHello({ minVersion: 1, maxVersion: 1, name: 'fuzz', pid: 1 });
const EVENTS = encodeEvents({ position: '', pools: ['', 'mamba'] });
const LOOKUPS = encodeLookups({ asked: 7, found: 3 });
const PIN = encodePin({ pool: 'kv', forMs: 60_000, keys: ['a', 'ü', ''] });
const TELL = encodeTell({ pool: '', session: 's', waitingMs: 5, branched: true, shared: 1, keys: ['k', 'l'] });
const PREFETCH = encodePrefetch({ pool: '', inMs: 5, keys: ['k'] });
const pieces = { pieceCount: 2, offsets: [0, 8, 16, 24], lengths: [8, 8, 8, 8], regionIds: [0, 1, 0, 1] };
const BODIES: readonly Buffer[] = [
  HELLO,
  encodeHello({ minVersion: 1, maxVersion: 1, name: 'fuzz', pid: 1, namespace: NAMESPACE }),
  encodeExists({ pool: 'kv', wantsFlags: true, suffixes: ['-k', '-v'], keys: ['a', 'ü', ''] }),
  encodeRegionRequest({ pool: '', isNamed: false, hint: 2, continues: true, keys: ['a', 'b'], pieces }),
  encodeKeyRequest('kv', ['a', 'b'], { hasFlags: true }),
  encodeKeyRequest('kv', ['a', 'b'], { hasFlags: false }),
  encodeSetBytes({ pool: '', isNamed: true, keys: ['a', 'b'], pages: [Buffer.from('x'), Buffer.from('yz')] }),
  encodePools(['kv', 'mamba']),
  encodeFile({ regionId: 1, isWritable: true, length: 4096, pid: 2, fd: 3 }),
  Buffer.concat(ended(encodeBytesAnswer([Buffer.from('abc'), 0xffffffff]))),
  encodeDescriptorRequest({
    kind: 'region',
    attachToken: Buffer.alloc(16, 1),
    regionId: 1,
    isWritable: true,
    length: 4096,
  }),
  EVENTS,
  PIN,
  encodeGetStaged({ pool: 'kv', offset: 64, roomBytes: 4096, keys: ['a', 'ü', ''] }),
  encodeEventsAnswer({
    kind: 'changed',
    position: '1-1',
    atMs: 1,
    changes: [
      { pool: 0, key: 'a', tier: 'memory' },
      { pool: 1, key: 'b', tier: null },
    ],
  }),
];
const REGION_LIMITS = { maxKeys: 64, maxPieces: 256 };

/** Each decoder, and what encodes what it has decoded. */
const CODECS: readonly ((body: Buffer) => readonly [decoded: unknown, again: unknown])[] = [
  twice(decodeHello, encodeHello),
  twice((body) => decodeExists(body, 64), encodeExists),
  twice(decodeLookups, encodeLookups),
  twice((body) => decodeRegionRequest(body, REGION_LIMITS), encodeRegionRequest),
  twice(
    (body) => decodeKeyRequest(body, 64, { hasFlags: true }),
    ({ pool, keys, hint, continues }) => encodeKeyRequest(pool, keys, { hasFlags: true, hint, continues }),
  ),
  twice(
    (body) => decodeKeyRequest(body, 64, { hasFlags: false }),
    ({ pool, keys }) => encodeKeyRequest(pool, keys, { hasFlags: false }),
  ),
  twice((body) => decodeSetBytes(body, 64), encodeSetBytes),
  twice(decodePools, encodePools),
  twice(decodeFile, encodeFile),
  twice(
    (body) => decodeBytesAnswer(body, 2),
    (results) => Buffer.concat(ended(encodeBytesAnswer(results))),
  ),
  twice(decodeHelloAnswer, encodeHelloAnswer),
  twice(decodeDescriptorRequest, encodeDescriptorRequest),
  twice(decodeEvents, encodeEvents),
  twice((body) => decodeEventsAnswer(body, 2), encodeEventsAnswer),
  twice((body) => decodePin(body, 64), encodePin),
  twice(decodeEndPins, encodeEndPins),
  twice((body) => decodeTell(body, 64), encodeTell),
  twice((body) => decodePrefetch(body, 64), encodePrefetch),
  twice((body) => decodeGetStaged(body, 64), encodeGetStaged),
  twice((body) => decodeStagedAnswer(body, 2), encodeStagedAnswer),
];

function twice<T>(decode: (body: Buffer) => T, encode: (value: Whole<T>) => Buffer) {
  return (body: Buffer): readonly [unknown, unknown] => {
    const decoded = whole(decode(body));
    return [decoded, whole(decode(Buffer.from(encode(decoded))))];
  };
}

/** Bodies of the client socket; the first byte says for which decoder. */
export const clientMessages: Fuzzer = {
  name: 'client-messages',
  what: 'messages of the client socket: decoding, and the same out of what is encoded of it',
  form: 'bytes',
  seeds: () => CODECS.flatMap((_, i) => BODIES.map((body) => Buffer.concat([Buffer.from([i]), body]))),
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 65_536,
  run(input) {
    const codec = CODECS[(input[0] ?? 0) % CODECS.length] as (typeof CODECS)[0];
    const done = unlessRefused([ProtocolError], () => codec(input.subarray(1)));
    if (done === undefined) return;
    const [decoded, again] = done.value;
    check(isDeepStrictEqual(again, decoded), 'what is encoded of a message decodes to something else');
  },
};

const env = memoryEnvironment();
/** A store that has every page, at once. */
const store = {
  exists: async (keys: Keys) => stringsOf(keys).map(() => true),
  get: async (keys: Keys) => stringsOf(keys).map(() => true),
  set: async (keys: Keys) => stringsOf(keys).map(() => true),
  delete: async (keys: Keys) => stringsOf(keys).map(() => true),
  clear: async () => {},
  getCopyWithin: async () => new Uint8Array(3),
} as unknown as PageStore;
/** A list of one page, and its end. */
async function* somePageEvents(): AsyncGenerator<PageEvent, void> {
  yield { kind: 'reset' };
  yield {
    kind: 'listed',
    changes: [{ key: new KeyEncoder(NAMESPACE).encodeKeys(['a'])[0] as string, tier: 'memory' }],
  };
  yield { kind: 'complete', position: '1-1' };
}
const bootToken = Buffer.alloc(16, 7);

function frame(type: number, requestId: number, body: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([encodeHeader({ bodyBytes: body.length, type, status: 0, requestId, deadlineMs: 0 }), body]);
}

function doorFor(onEnded: () => void): ClientServer {
  const encoder = new KeyEncoder(NAMESPACE);
  const namespace = new ClientNamespace(new StoredPages(store, encoder), {
    holdersOf: async (keys) => keys.map(() => []),
    follow: somePageEvents,
  });
  const limits = clientLimits({ bodyMaxBytes: 100_000, inFlightMaxCount: 4, smallBodiesMaxBytes: 1_000 });
  const turns = new WorkTurns(env.clock);
  const pauses = { sentAfterMs: () => env.clock.nowMs() };
  return {
    connections: new ServedConnections<ClientConnection>(env.clock, servedLimits(limits), { turns, pauses }),
    limits,
    paid: new AbsentBudget(),
    budget: new ByteBudget(2 ** 26),
    turns,
    lines: new SparseLog(env),
    regionShares: new Shares(100),
    attach: async () => {
      const counts = new ClientCounts(env.metrics, 'fuzz');
      const access = new ClientAccess(new Users().identify({}) as Identity, '');
      return { namespace, access, counts, caller: 1, audited: (_, work) => work(), answer: Buffer.from('hello') };
    },
    openFile: async () => {
      throw new RequestError(Status.unavailable, 'no files here');
    },
    tellFingerprint: () => 1,
    statsOf: () => ({}),
    mayHaveAnswers: () => true,
    bootToken,
    replaced: () => {},
    closed: () => {},
    ended: onEnded,
  } as Partial<ClientServer> as ClientServer;
}

/** Whole requests of a stream, as PROTOCOL.md has them; undefined behind what ends the connection. */
function requestIdsIn(stream: Buffer): { readonly ids: number[]; readonly isComplete: boolean } {
  const ids: number[] = [];
  let at = 0;
  while (stream.length - at >= FRAME_HEADER_BYTES) {
    const { bodyBytes, type, requestId } = decodeHeader(stream.subarray(at));
    if (stream.length - at - FRAME_HEADER_BYTES < bodyBytes) return { ids, isComplete: false };
    if (type !== RequestType.cancel && type !== RequestType.lookups) ids.push(requestId);
    at += FRAME_HEADER_BYTES + bodyBytes;
  }
  return { ids, isComplete: at === stream.length };
}

/** A whole connection over a store that answers at once. */
export const clientConnection: Fuzzer = {
  name: 'client-connection',
  what: 'a connection of the client socket: every whole request has one answer, or the connection ends; nothing is left of it',
  form: 'bytes',
  tokens: [
    frame(RequestType.hello, 1, HELLO),
    ...Object.values(RequestType).map((type) => frame(type, 2)),
    ...BODIES,
    Buffer.from([0xff, 0xff, 0xff, 0xff]),
  ],
  seeds: () => {
    const bodyOf = new Map<number, Buffer>([
      [RequestType.exists, BODIES[2] as Buffer],
      [RequestType.get, BODIES[3] as Buffer],
      [RequestType.set, BODIES[3] as Buffer],
      [RequestType.getBytes, BODIES[4] as Buffer],
      [RequestType.setBytes, BODIES[6] as Buffer],
      [RequestType.delete, BODIES[5] as Buffer],
      [RequestType.stat, BODIES[5] as Buffer],
      [RequestType.clear, BODIES[7] as Buffer],
      [RequestType.file, BODIES[8] as Buffer],
      [RequestType.fence, Buffer.alloc(4)],
      [RequestType.cancel, Buffer.from([3, 0, 0, 0])],
      [RequestType.lookups, LOOKUPS],
      [RequestType.unregion, Buffer.from([1, 0, 0, 0])],
      [RequestType.ping, Buffer.alloc(0)],
      [RequestType.events, EVENTS],
      [RequestType.pin, PIN],
      [RequestType.unpin, BODIES[5] as Buffer],
      [RequestType.tell, TELL],
      [RequestType.prefetch, PREFETCH],
      [RequestType.endPins, encodeEndPins('system')],
      [RequestType.stats, Buffer.alloc(0)],
    ]);
    const frames = [...bodyOf].map(([type, body], i) => frame(type, i + 2, body));
    return [0, 1, 7, 150].map((mode) => inPieces(mode, frame(RequestType.hello, 1, HELLO), ...frames));
  },
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 262_144,
  async run(input) {
    const { stream, pieces: parts } = piecesOf(input);
    const socket = new MemorySocket();
    let endedCount = 0;
    const door = doorFor(() => endedCount++);
    const sharer = { one: 'process 1', group: 'user 0' };
    const connection = new ClientConnection(socket, door, { sharer, credentials: undefined });
    door.connections.add(connection);
    await socket.feed(parts);
    door.connections.verify('fuzz');
    for (let i = 0; i < 6; i++) await turn();
    door.connections.verify('fuzz');
    const answers = answersIn(socket.sent);
    const { ids } = requestIdsIn(stream);
    const expected = new Map<number, number>();
    for (const id of ids) expected.set(id, (expected.get(id) ?? 0) + 1);
    for (const { requestId, status } of answers) {
      check(status <= 8, 'a status that there is not');
      check(status !== 8, 'the node has failed');
      if (requestId === 0) {
        check(connection.isClosed, 'goes on after a violation');
        continue;
      }
      const left = expected.get(requestId) ?? 0;
      check(left > 0, 'an answer to a request that was none, or a second one');
      expected.set(requestId, left - 1);
    }
    const unanswered = [...expected.values()].some((left) => left > 0);
    check(connection.isClosed || !unanswered, 'a request was not answered');
    check(connection.isClosed || connection.inFlightCount === 0, 'an answered request is in flight');
    await socket.hangUp();
    await turn();
    check(connection.isClosed && endedCount === 1, 'a connection that has not ended, or twice');
    door.connections.verify('fuzz');
    check(door.connections.unendedCount === 0, 'an ended connection is still counted');
    check(connection.regions.mappedBytes === 0, 'memory of an ended connection');
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

function answersIn(sent: Buffer) {
  const answers = [];
  let at = 0;
  while (at < sent.length) {
    check(sent.length - at >= FRAME_HEADER_BYTES, 'half an answer');
    const header = decodeHeader(sent.subarray(at));
    at += FRAME_HEADER_BYTES + header.bodyBytes;
    check(at <= sent.length, 'half an answer');
    answers.push(header);
  }
  return answers;
}
