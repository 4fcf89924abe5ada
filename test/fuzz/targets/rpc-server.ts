import { isDeepStrictEqual } from 'node:util';
import { ArgumentError } from '../../../src/base/errors.js';
import { RPC_FRAME_MAX_BYTES } from '../../../src/base/limits.js';
import { encodeHello, FrameType } from '../../../src/rpc/frame.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { RpcServer } from '../../../src/rpc/server.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';
import { framesIn, rpcFrame } from '../rpc-bytes.js';

const codec = new MessageCodec();
const env = memoryEnvironment();
let server: RpcServer | undefined;

export const rpcServer: Fuzzer = {
  name: 'rpc-server',
  what: 'a connection of the RPC server: it answers what was whole, in order, or ends and is counted',
  form: 'bytes',
  tokens: [
    encodeHello(),
    ...['echo', 'never', 'fail', 'nothing'].map((method) => rpcFrame(FrameType.call, 1, [method, {}])),
    rpcFrame(FrameType.cancel, 1, null),
    Buffer.from([0x92, 0xa4, ...Buffer.from('echo')]),
    Buffer.from([0, 0, 0, 1]),
    Buffer.from([0xff, 0xff, 0xff]),
  ],
  seeds: () => {
    const frames = [
      rpcFrame(FrameType.call, 1, ['echo', { text: 'z'.repeat(40), list: [1, { a: null }] }]),
      rpcFrame(FrameType.call, 2, ['never', {}]),
      rpcFrame(FrameType.cancel, 2, null),
      rpcFrame(FrameType.call, 3, ['fail', { x: 1 }]),
      rpcFrame(FrameType.call, 4, ['nothing', {}]),
      rpcFrame(FrameType.call, 5, ['echo', [1, 2]]),
    ];
    return [0, 1, 7, 150].map((mode) => inPieces(mode, encodeHello(), ...frames));
  },
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 65_536,
  async run(input) {
    server ??= await startServer();
    const { stream, pieces } = piecesOf(input);
    const expected = expectedOf(stream);
    const before = faultCount(server);
    const socket = env.network.accept();
    await socket.feed(pieces);
    await turn();
    const isDropped = socket.destroyed;
    server.verify();
    check(
      isDropped === expected.isDropped,
      isDropped ? 'dropped although nothing was wrong' : 'goes on after a violation',
    );
    await socket.hangUp();
    server.verify();
    const faults = faultCount(server) - before;
    check(faults === expected.faults, `${faults} faults counted, ${expected.faults} there were`);
    if (!isDropped) checkAnswers(socket.sent, expected.answers);
    check(server.stats().connections === 0, 'an ended connection is still counted');
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
  async close() {
    await server?.stop();
    server = undefined;
  },
};

async function startServer(): Promise<RpcServer> {
  const started = new RpcServer({ host: '127.0.0.1', env });
  started.handle('echo', (params) => params);
  started.handle('never', () => new Promise(() => {}));
  started.handle('fail', () => {
    throw new ArgumentError('as asked');
  });
  await started.start();
  return started;
}

function faultCount(of: RpcServer): number {
  return Object.values(of.stats().errors).reduce((sum, count) => sum + (count ?? 0), 0);
}

interface Answer {
  readonly type: number;
  readonly requestId: number;
  readonly value?: unknown;
}

interface Expected {
  readonly answers: readonly Answer[];
  /** Before the peer hangs up. */
  readonly isDropped: boolean;
  readonly faults: number;
}

/** PROTOCOL.md once more, on the whole stream. */
function expectedOf(stream: Buffer): Expected {
  const answers: Answer[] = [];
  let faults = 0;
  const dropped = (): Expected => ({ answers, isDropped: true, faults: faults + 1 });
  if (stream.length < 12) return { answers, isDropped: false, faults: Number(stream.length > 0) };
  const frameMaxBytes = stream.readUInt32LE(8);
  if (stream.toString('latin1', 0, 4) !== 'MCRP' || stream[4] !== 1 || stream.readUInt16LE(6) !== 0) return dropped();
  const inUse = new Set<number>();
  let at = 12;
  for (; stream.length - at >= 9; ) {
    const length = stream.readUInt32LE(at);
    if (length > RPC_FRAME_MAX_BYTES) return dropped();
    if (stream.length - at < 9 + length) break;
    const [type, requestId] = [stream[at + 8] as number, stream.readUInt32LE(at + 4)];
    const message = stream.subarray(at + 9, at + 9 + length);
    at += 9 + length;
    if (type === FrameType.cancel) continue;
    if (type !== FrameType.call || inUse.has(requestId)) return dropped();
    const call = decodeCall(message);
    if (call === undefined) return dropped();
    const answer = answerOf(call, requestId);
    if (answer === undefined) {
      inUse.add(requestId);
      continue;
    }
    if (answer.type === FrameType.error) faults++;
    const answerBytes = codec.encode('value' in answer ? answer.value : answerError(call)).length;
    // An answer that the peer does not take is replaced by an error; an error that it does not take ends the
    // connection.
    if (answerBytes > frameMaxBytes) return { answers, isDropped: true, faults: faults + (answer.type === 2 ? 2 : 1) };
    answers.push(answer);
  }
  return { answers, isDropped: false, faults: faults + Number(at < stream.length) };
}

type Call = readonly [method: string, params: unknown];

function decodeCall(message: Buffer): Call | undefined {
  try {
    const call = codec.decode(message);
    return Array.isArray(call) && call.length === 2 && typeof call[0] === 'string'
      ? (call as unknown as Call)
      : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined: the call is never answered. */
function answerOf([method, params]: Call, requestId: number): Answer | undefined {
  const isMap =
    typeof params === 'object' && params !== null && !Array.isArray(params) && !(params instanceof Uint8Array);
  if (!['echo', 'never', 'fail'].includes(method) || !isMap) return { type: FrameType.error, requestId };
  if (method === 'never') return undefined;
  return method === 'fail'
    ? { type: FrameType.error, requestId }
    : { type: FrameType.answer, requestId, value: params };
}

/** As long as what the server says. */
function answerError([method]: Call): unknown {
  if (method === 'fail') return { code: 'ERR_ARGUMENT', message: 'as asked' };
  return { code: 'ERR_ARGUMENT', message: '' };
}

function checkAnswers(sent: Buffer, expected: readonly Answer[]): void {
  if (sent.length === 0) {
    check(expected.length === 0, 'nothing was answered');
    return;
  }
  check(sent.subarray(0, 12).equals(encodeHello()), 'the server begins with its hello');
  const { frames, restBytes } = framesIn(sent);
  check(restBytes === 0, 'half an answer');
  check(frames.length === expected.length, `${frames.length} answers to ${expected.length} calls`);
  for (const [i, { type, requestId, message }] of frames.entries()) {
    const answer = expected[i] as Answer;
    check(type === answer.type && requestId === answer.requestId, 'an answer of another kind, or to another call');
    const value = codec.decode(message);
    if (type === FrameType.answer) check(isDeepStrictEqual(value, answer.value), 'the echo of something else');
  }
}
