import { crc32 } from '../../../src/memory/checksum.js';
import { AnswerTimes } from '../../../src/net/answer-times.js';
import { AuthFailures } from '../../../src/net/auth-failures.js';
import { tcpLimits } from '../../../src/transport/tcp/protocol/limits.js';
import { STAGING_BYTES } from '../../../src/transport/tcp/reading/landing.js';
import { ReadConnection } from '../../../src/transport/tcp/reading/read-connection.js';
import { NO_CHECKSUM, ReadBatch, ReadCounters, ReadRequest } from '../../../src/transport/tcp/reading/read-request.js';
import { content } from '../../_support/support.js';
import { HELLO, responseHeader } from '../../_support/transport/raw-peer.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { type MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';

interface PlannedOp {
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly isVerified: boolean;
}

/** Two requests: short operations, none, and one that is long enough to be received in place. */
const REQUESTS: readonly (readonly PlannedOp[])[] = [
  [op(1, 100, true), op(2, 0, true), op(3, 40, false), op(4, 300, true)],
  [op(5, 17_000, true), op(6, 8, false)],
];
/** Between and around the destinations; must stay as it is. */
const GUARD_BYTES = 16;
const GUARD = 0xa5;
const staging = new Uint8Array(STAGING_BYTES);
const limits = tcpLimits();

function op(seed: number, length: number, isVerified: boolean): PlannedOp {
  return { length, bytes: content(seed, length), isVerified };
}

export const tcpReading: Fuzzer = {
  name: 'tcp-reading',
  what: 'a connection of the TCP data plane’s reader: true only with all bytes in place, and nothing written elsewhere',
  form: 'bytes',
  inputMaxBytes: 20_000,
  tokens: [HELLO, Buffer.from('MCRS'), responseHeader(1, 4), responseHeader(2, 2), Buffer.from([1, 0, 0, 0])],
  seeds: () => {
    const payload = (request: number) => Buffer.concat((REQUESTS[request] as PlannedOp[]).map(({ bytes }) => bytes));
    const first = [HELLO, responseHeader(1, 4, { payloadBytes: 440 }), payload(0)];
    const refusal = [HELLO, responseHeader(1, 4, { grantedOps: 1, payloadBytes: 100 }), payload(0).subarray(0, 100)];
    const second = [responseHeader(2, 2, { payloadBytes: 17_008 }), payload(1)];
    return [
      ...[0, 1, 120, 140].map((mode) => inPieces(mode, ...first)),
      ...[0, 90, 150].map((mode) => inPieces(mode, ...refusal, responseHeader(2, 2, { grantedOps: 0 }))),
      ...[0, 127].map((mode) => inPieces(mode, ...first, ...second)),
    ];
  },
  allocationMaxBytes: (inputBytes) => 2 * inputBytes + 65_536,
  async run(input) {
    const { stream, pieces } = piecesOf(input);
    const env = memoryEnvironment();
    const counters = new ReadCounters();
    const endpoint = { host: '192.0.2.9', port: 9 };
    const authFailures = new AuthFailures('data', env);
    const connection = new ReadConnection({
      endpoint,
      staging,
      counters,
      limits,
      env,
      authFailures,
      times: new AnswerTimes(),
      onAnswering() {},
      onOverdue() {},
      onClose() {},
      onMoved() {},
    });
    const targets = REQUESTS.map((ops) => new Target(ops));
    for (const { request } of targets) connection.submit(request);
    const socket = env.network.connections[0] as MemorySocket;
    socket.connected();
    await socket.feed(pieces);
    await turn();
    connection.verify();
    const expected = expectedOf(stream);
    check(
      socket.destroyed === expected.isViolated,
      socket.destroyed ? 'gave up a good peer' : 'goes on with a bad one',
    );
    check(
      expected.isRefused || counters.value('protocolErrors') === Number(expected.isViolated),
      'a violation counted wrongly',
    );
    await socket.hangUp();
    connection.verify();
    for (const [i, target] of targets.entries()) {
      const results = await target.batch.done;
      check(
        results.join() === (expected.results[i] as boolean[]).join(),
        () => `request ${i}: ${results}, not ${expected.results[i]}`,
      );
      target.check(results, expected.payloads[i] as (Buffer | undefined)[]);
    }
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

/** A request and the memory that it lands in, all of it in one piece with guards. */
class Target {
  readonly batch: ReadBatch;
  readonly request: ReadRequest;
  readonly #ops: readonly PlannedOp[];
  readonly #memory: Uint8Array;
  readonly #starts: number[] = [];

  constructor(ops: readonly PlannedOp[]) {
    this.#ops = ops;
    this.batch = new ReadBatch(ops.length);
    this.request = new ReadRequest(this.batch);
    const bytes = ops.reduce((sum, { length }) => sum + length + GUARD_BYTES, GUARD_BYTES);
    this.#memory = new Uint8Array(bytes).fill(GUARD);
    let at = GUARD_BYTES;
    for (const [index, { length, bytes: page, isVerified }] of ops.entries()) {
      const checksum = isVerified ? crc32(page) : NO_CHECKSUM;
      this.request.beginOp({ index, rkey: 1, remoteAddr: 4096, length, checksum, stamp: 0 });
      if (length > 0) this.request.addPiece(this.#memory, at, length);
      this.request.endOp();
      this.#starts.push(at);
      at += length + GUARD_BYTES;
    }
  }

  check(results: readonly boolean[], payloads: readonly (Buffer | undefined)[]): void {
    for (const [i, { length, bytes, isVerified }] of this.#ops.entries()) {
      const start = this.#starts[i] as number;
      const landed = this.#memory.subarray(start, start + length);
      if (results[i])
        check(Buffer.compare(landed, isVerified ? bytes : (payloads[i] as Buffer)) === 0, 'true, with other bytes');
      const guard = this.#memory.subarray(start + length, start + length + GUARD_BYTES);
      check(
        guard.every((byte) => byte === GUARD),
        'written beyond the destination',
      );
    }
    check(
      this.#memory.subarray(0, GUARD_BYTES).every((byte) => byte === GUARD),
      'written before the destination',
    );
  }
}

interface Expected {
  /** The peer wants authentication, and there are no secrets. */
  readonly isRefused: boolean;
  readonly isViolated: boolean;
  readonly results: readonly (readonly boolean[])[];
  readonly payloads: readonly (readonly (Buffer | undefined)[])[];
}

/** PROTOCOL.md once more, on the whole stream. */
function expectedOf(stream: Buffer): Expected {
  const results = REQUESTS.map((ops) => ops.map(() => false));
  const payloads = REQUESTS.map((ops): (Buffer | undefined)[] => ops.map(() => undefined));
  const result = (isViolated: boolean, isRefused = false): Expected => ({ isViolated, isRefused, results, payloads });
  if (stream.length < 32) return result(false);
  const start = Buffer.from(stream.subarray(0, 8));
  const isAuthWanted = start[6] === 1;
  if (isAuthWanted) start[6] = 0;
  if (!start.equals(HELLO.subarray(0, 8))) return result(true);
  if (isAuthWanted) return result(true, true);
  let at = 32;
  for (let r = 0; stream.length - at >= 152; r++) {
    const ops = REQUESTS[r];
    const header = stream.subarray(at, at + 152);
    const isAnswer = header.toString('latin1', 0, 4) === 'MCRS' && header.readUInt32LE(12) === 0;
    if (!isAnswer || ops === undefined || header.readUInt32LE(4) !== r + 1 || header.readUInt32LE(8) !== ops.length)
      return result(true);
    const isGranted = (i: number): boolean => (((header[24 + (i >>> 3)] as number) >>> (i & 7)) & 1) === 1;
    const grantedBytes = ops.reduce((sum, { length }, i) => sum + (isGranted(i) ? length : 0), 0);
    if (header.readBigUInt64LE(16) !== BigInt(grantedBytes)) return result(true);
    at += 152;
    for (const [i, { length, bytes, isVerified }] of ops.entries()) {
      if (!isGranted(i)) continue;
      if (stream.length - at < length) return result(false);
      const payload = stream.subarray(at, at + length);
      at += length;
      (payloads[r] as (Buffer | undefined)[])[i] = payload;
      (results[r] as boolean[])[i] = !isVerified || Buffer.compare(payload, bytes) === 0;
    }
  }
  return result(false);
}
