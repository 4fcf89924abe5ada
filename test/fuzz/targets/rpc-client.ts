import { isDeepStrictEqual } from 'node:util';
import { MeshCacheError } from '../../../src/base/errors.js';
import { RPC_FRAME_MAX_BYTES } from '../../../src/base/limits.js';
import { RpcClient } from '../../../src/rpc/client.js';
import { encodeHello, FrameType } from '../../../src/rpc/frame.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { type MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';
import { rpcFrame } from '../rpc-bytes.js';

const CALLS = 3;
const codec = new MessageCodec();

/** How a call ended: with a value, with an error, or not before the connection did. */
type Ending = { readonly value: unknown } | { readonly code: string };

export const rpcClient: Fuzzer = {
  name: 'rpc-client',
  what: 'a connection of the RPC client: every call ends, and with a value only when a whole answer to it has come',
  form: 'bytes',
  tokens: [
    encodeHello(),
    ...[1, 2, 3].map((id) => rpcFrame(FrameType.answer, id, {})),
    rpcFrame(FrameType.error, 1, { code: 'ERR_OVERLOADED', message: 'later' }),
    Buffer.from('ERR_PROTOCOL'),
    Buffer.from([0, 0, 0, 2]),
  ],
  seeds: () => {
    const frames = [
      rpcFrame(FrameType.answer, 2, { list: [1, 'two', null] }),
      rpcFrame(FrameType.error, 1, { code: 'ERR_OVERLOADED', message: 'later' }),
      rpcFrame(FrameType.answer, 9, 'to nobody'),
      rpcFrame(FrameType.answer, 3, new Uint8Array(20)),
    ];
    return [0, 1, 11, 130].map((mode) => inPieces(mode, encodeHello(), ...frames));
  },
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 65_536,
  async run(input) {
    const env = memoryEnvironment();
    const client = new RpcClient({ env });
    const endings: (Ending | undefined)[] = [];
    const calls = Array.from({ length: CALLS }, (_, i) => callOnce(client, i, endings));
    const socket = env.network.connections[0] as MemorySocket;
    socket.connected();
    const { stream, pieces } = piecesOf(input);
    await socket.feed(pieces);
    await turn();
    client.verify();
    const expected = expectedOf(stream);
    check(socket.destroyed === expected.isDropped, socket.destroyed ? 'gave up a good peer' : 'goes on with a bad one');
    for (let i = 0; i < CALLS; i++) {
      const wanted = expected.endings[i] ?? (expected.isDropped ? { code: 'ERR_UNREACHABLE' } : undefined);
      check(isDeepStrictEqual(endings[i], wanted), () => `call ${i + 1} ended otherwise than it was answered`);
    }
    await socket.hangUp();
    await Promise.all(calls);
    await client.close();
    client.verify();
    check(env.network.connections.length === 1, 'connected again by itself');
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

async function callOnce(client: RpcClient, i: number, endings: (Ending | undefined)[]): Promise<void> {
  try {
    endings[i] = { value: await client.call({ host: '192.0.2.9', port: 9 }, 'method', { i }) };
  } catch (error) {
    if (!(error instanceof MeshCacheError)) throw error;
    endings[i] = { code: error.code };
  }
}

const CODES = ['ERR_ARGUMENT', 'ERR_PROTOCOL', 'ERR_AUTH', 'ERR_CLOSED', 'ERR_OVERLOADED', 'ERR_REMOTE'];

/** PROTOCOL.md once more, on the whole stream; calls have the ids 1 to 3. */
function expectedOf(stream: Buffer): {
  readonly endings: readonly (Ending | undefined)[];
  readonly isDropped: boolean;
} {
  const endings: (Ending | undefined)[] = [];
  const dropped = { endings, isDropped: true };
  if (stream.length < 12) return { endings, isDropped: false };
  const flags = stream.readUInt16LE(6);
  if (stream.toString('latin1', 0, 4) !== 'MCRP' || stream[4] !== 1 || flags > 1) return dropped;
  // It wants a secret, and there is none.
  if (flags === 1) return { endings: Array.from({ length: CALLS }, () => ({ code: 'ERR_AUTH' })), isDropped: true };
  for (let at = 12; stream.length - at >= 9; ) {
    const length = stream.readUInt32LE(at);
    if (length > RPC_FRAME_MAX_BYTES) return dropped;
    if (stream.length - at < 9 + length) break;
    const [type, call] = [stream[at + 8] as number, stream.readUInt32LE(at + 4) - 1];
    const message = stream.subarray(at + 9, at + 9 + length);
    at += 9 + length;
    if (type < 1 || type > 4) return dropped;
    if (call < 0 || call >= CALLS || endings[call] !== undefined) continue;
    if (type !== FrameType.answer && type !== FrameType.error) return dropped;
    let value: unknown;
    try {
      value = codec.decode(message);
    } catch {
      return dropped;
    }
    endings[call] = type === FrameType.answer ? { value } : { code: codeOf(value) };
  }
  return { endings, isDropped: false };
}

function codeOf(value: unknown): string {
  const { code } = (typeof value === 'object' && value !== null ? value : {}) as { code?: unknown };
  return typeof code === 'string' && CODES.includes(code) ? code : 'ERR_REMOTE';
}
