import { seededRandom } from '../../../src/base/environment/random.js';
import { tcpLimits } from '../../../src/transport/tcp/protocol/limits.js';
import { type Registration, Registrations } from '../../../src/transport/tcp/serving/registrations.js';
import { ServingConnection, ServingCounters } from '../../../src/transport/tcp/serving/serving-connection.js';
import { ManualClock } from '../../_support/clock.js';
import { content } from '../../_support/support.js';
import { HELLO, requestFrame, responseHeader } from '../../_support/transport/raw-peer.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';

const START = 0x100_0000;
const SEGMENT_BYTES = 4096;
const SEGMENTS = [content(1, SEGMENT_BYTES), content(2, SEGMENT_BYTES)];
const MEMORY = Buffer.concat(SEGMENTS);
const RKEY = 0x11223344;
const FREED_RKEY = 0x55667788;
/** Of the region: what peers may read. */
const [FROM, TO] = [1000, 7000];
const limits = tcpLimits({ readMaxBytes: 65_536, requestMaxOps: 64 });

function registration(rkey: number, isLive: boolean): Registration {
  return {
    rkey,
    start: START + FROM,
    length: TO - FROM,
    regionStart: START,
    segmentBytes: SEGMENT_BYTES,
    segments: SEGMENTS,
    registeredFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
    liveFlag: new Int32Array(new SharedArrayBuffer(4)).fill(Number(isLive)),
  };
}

const registrations = new Registrations(() => {});
registrations.add(registration(RKEY, true));
const freed = registration(FREED_RKEY, true);
registrations.add(freed);
freed.liveFlag[0] = 0;

export const tcpServing: Fuzzer = {
  name: 'tcp-serving',
  what: 'a connection of the TCP data plane’s server: exactly the registered bytes, or the end, counted',
  form: 'bytes',
  tokens: [
    HELLO,
    Buffer.from('MCRQ'),
    u64(START + FROM),
    u64(START + TO),
    u64(START),
    u32(RKEY),
    u32(FREED_RKEY),
    u32(TO - FROM),
    u64(2 ** 53),
    u64(1),
  ],
  seeds: () => {
    const at = (offset: number, length: number, rkey = RKEY) => ({ rkey, addr: BigInt(START + offset), length });
    const requests = [
      requestFrame(1, [at(FROM, 100), at(SEGMENT_BYTES - 50, 100), at(TO - 1, 1), at(FROM, 0)]),
      requestFrame(2, [at(FROM - 1, 1), at(TO, 1), at(FROM, 10, FREED_RKEY), at(FROM, 10, 9), at(FROM, 6000)]),
      requestFrame(0xffffffff, [at(2000, 64)]),
    ];
    return [0, 1, 16, 24, 140].map((mode) => inPieces(mode, HELLO, ...requests));
  },
  // Each operation may ask for all that is registered, and what is granted is not copied; 8 bytes an operation for its
  // pieces.
  allocationMaxBytes: (inputBytes) => 4 * inputBytes + 65_536,
  async run(input) {
    const { stream, pieces } = piecesOf(input);
    const socket = new MemorySocket();
    const clock = new ManualClock();
    const counters = new ServingCounters();
    let refusals = 0;
    new ServingConnection({
      socket: socket as never,
      registrations,
      counters,
      limits,
      clock,
      random: seededRandom(1),
      target: 'data 192.0.2.9:9',
      onOpen() {},
      onUnauthenticated: () => refusals++,
    });
    await socket.feed(pieces);
    await turn();
    const expected = expectedOf(stream);
    check(
      socket.destroyed === expected.isViolated,
      socket.destroyed ? 'ended a good connection' : 'goes on after a violation',
    );
    check(
      socket.sent.equals(expected.sent),
      () => `sent ${socket.sent.length} bytes, expected ${expected.sent.length}`,
    );
    await socket.hangUp();
    // A hello with two faults may be refused for the one that comes first.
    check(refusals === 1 || !expected.isRefused, 'not refused');
    const violations = Number(expected.isViolated || expected.restBytes > 0);
    check(refusals === 1 || counters.value('protocolErrors') === violations, 'a violation counted wrongly');
    check(clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

interface Expected {
  readonly sent: Buffer;
  readonly isViolated: boolean;
  /** It wants authentication, and there are no secrets. */
  readonly isRefused: boolean;
  readonly restBytes: number;
}

/** PROTOCOL.md once more, on the whole stream. */
function expectedOf(stream: Buffer): Expected {
  const sent: Buffer[] = [HELLO];
  const result = (isViolated: boolean, restBytes = 0, isRefused = false): Expected => {
    return { sent: Buffer.concat(sent), isViolated, isRefused, restBytes };
  };
  const start = Buffer.from(stream.subarray(0, 8));
  const isAuthWanted = start[6] === 1;
  if (isAuthWanted) start[6] = 0;
  if (!start.equals(HELLO.subarray(0, start.length))) return result(true);
  // As soon as its flags are there.
  if (isAuthWanted) return result(true, 0, true);
  if (stream.length < 32) return result(false, stream.length);
  let at = 32;
  while (stream.length - at >= 24) {
    const [opCount, totalBytes] = [stream.readUInt32LE(at + 8), stream.readBigUInt64LE(at + 16)];
    if (stream.toString('latin1', at, at + 4) !== 'MCRQ' || stream.readUInt32LE(at + 12) !== 0) return result(true);
    if (opCount < 1 || opCount > limits.requestMaxOps || totalBytes > BigInt(limits.readMaxBytes)) return result(true);
    if (stream.length - at < 24 + 16 * opCount) break;
    const granted: number[] = [];
    const payload: Buffer[] = [];
    let sum = 0n;
    for (let i = 0; i < opCount; i++) {
      const op = at + 24 + 16 * i;
      const [rkey, length, addr] = [
        stream.readUInt32LE(op),
        stream.readUInt32LE(op + 4),
        stream.readBigUInt64LE(op + 8),
      ];
      sum += BigInt(length);
      const end = addr + BigInt(length);
      if (rkey !== RKEY || addr < BigInt(START + FROM) || end > BigInt(START + TO)) continue;
      granted.push(i);
      payload.push(MEMORY.subarray(Number(addr) - START, Number(end) - START));
    }
    if (sum !== totalBytes) return result(true);
    const bytes = Buffer.concat(payload);
    const header = responseHeader(stream.readUInt32LE(at + 4), opCount, { grantedOps: 0, payloadBytes: bytes.length });
    for (const i of granted) header[24 + (i >>> 3)] = (header[24 + (i >>> 3)] as number) | (1 << (i & 7));
    sent.push(header, bytes);
    at += 24 + 16 * opCount;
  }
  return result(false, stream.length - at);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
