/**
 * The four openings with a shared secret, as the other side. Inputs cannot hold a proof, which depends on nonces: where
 * a proof belongs, the bytes of an input are added (exclusive or) to the right one, so that zeros prove and anything
 * else does not.
 */
import { createHash, createHmac } from 'node:crypto';
import { ClusterSecrets } from '../../../src/base/environment/credentials.js';
import type { RandomSource } from '../../../src/base/environment/random.js';
import { MeshCacheError } from '../../../src/base/errors.js';
import { AnswerTimes } from '../../../src/net/answer-times.js';
import { AuthFailures } from '../../../src/net/auth-failures.js';
import { RpcClient } from '../../../src/rpc/client.js';
import { encodeHello, FrameType } from '../../../src/rpc/frame.js';
import { RpcServer } from '../../../src/rpc/server.js';
import { tcpLimits } from '../../../src/transport/tcp/protocol/limits.js';
import { encodeHello as encodeDataHello } from '../../../src/transport/tcp/protocol/protocol.js';
import { STAGING_BYTES } from '../../../src/transport/tcp/reading/landing.js';
import { ReadConnection } from '../../../src/transport/tcp/reading/read-connection.js';
import { NO_CHECKSUM, ReadBatch, ReadCounters, ReadRequest } from '../../../src/transport/tcp/reading/read-request.js';
import { Registrations } from '../../../src/transport/tcp/serving/registrations.js';
import { ServingConnection, ServingCounters } from '../../../src/transport/tcp/serving/serving-connection.js';
import { requestFrame, responseHeader } from '../../_support/transport/raw-peer.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { type MemoryEnvironment, memoryEnvironment } from '../memory-environment.js';
import { MemorySocket, turn } from '../memory-socket.js';
import { inPieces, piecesOf } from '../pieces.js';
import { rpcFrame } from '../rpc-bytes.js';

const NONCE_BYTES = 32;
const CHALLENGE_BYTES = 64;
const PROOF_BYTES = 32;
const SECRETS = ['fuzz-secret-0123456789', 'fuzz-secret-9876543210'];
const secrets = ClusterSecrets.of(SECRETS) as ClusterSecrets;
/** The fuzzed side's nonces are always the same: then inputs are replayed as they were. */
const random: RandomSource = { bytes: (count) => new Uint8Array(count).fill(7), u32: () => 7 };
/** The one endpoint of all sides. */
const ENDPOINT = { host: '192.0.2.9', port: 1 };
/** What follows a hello in the greetings of both sides, except that the other side's nonce is its own. */
const targetOf = (plane: Plane): Buffer => {
  const target = `${plane === 'rpc' ? 'control' : 'data'} ${ENDPOINT.host}:${ENDPOINT.port}`;
  return createHash('sha256').update(`meshcache target 1 ${target}`).digest();
};
const challengeOf = (plane: Plane, nonceByte: number): Buffer =>
  Buffer.concat([Buffer.alloc(NONCE_BYTES, nonceByte), targetOf(plane)]);
const RPC_HELLO = encodeHello({ authentication: true });
const DATA_HELLO = encodeDataHello({ authentication: true });

type Plane = 'rpc' | 'data';
type Role = 'client' | 'server';

/** PROTOCOL.md once more. */
function proofs(plane: Plane, role: Role, greetings: readonly Buffer[]): Buffer[] {
  return SECRETS.map((secret) => {
    const hmac = createHmac('sha256', secret).update(`meshcache auth 1 ${plane} ${role}\0`);
    return hmac.update(Buffer.concat(greetings)).digest();
  });
}

interface Opening {
  /** As it is sent: with proofs where the input has zeros. */
  readonly bytes: Buffer;
  /** Whether the other side has to take it for a member. */
  readonly isProved: boolean;
  readonly greeting: Buffer;
}

/** `own`: the greeting of the side that is fuzzed. */
function opened(stream: Buffer, { plane, role, own }: { plane: Plane; role: Role; own: Buffer }): Opening {
  const hello = plane === 'rpc' ? RPC_HELLO : DATA_HELLO;
  const greetingBytes = hello.length + CHALLENGE_BYTES;
  const greeting = stream.subarray(0, greetingBytes);
  const right =
    role === 'client' ? proofs(plane, role, [greeting, own]) : proofs(plane, role, [own, greeting]).slice(0, 1);
  const end = greetingBytes + right.length * PROOF_BYTES;
  if (stream.length < end) return { bytes: stream, isProved: false, greeting };
  const given = Buffer.from(stream.subarray(greetingBytes, end));
  const isAnyRight = right.some((_, i) =>
    given.subarray(i * PROOF_BYTES, (i + 1) * PROOF_BYTES).every((byte) => byte === 0),
  );
  for (const [i, byte] of Buffer.concat(right).entries()) given[i] = (given[i] as number) ^ byte;
  const fixed = plane === 'rpc' ? Buffer.concat([stream.subarray(0, 5), stream.subarray(6, 8)]) : stream.subarray(0, 8);
  const wanted = plane === 'rpc' ? Buffer.concat([hello.subarray(0, 5), hello.subarray(6, 8)]) : hello.subarray(0, 8);
  const bytes = Buffer.concat([greeting, given, stream.subarray(end)]);
  const isMeant = greeting.subarray(-32).equals(targetOf(plane));
  return { bytes, isProved: isAnyRight && isMeant && fixed.equals(wanted), greeting };
}

function openedInput(
  input: Buffer,
  sides: { plane: Plane; role: Role; own: Buffer },
): Opening & { readonly pieces: readonly Buffer[] } {
  const opening = opened(input.subarray(1), sides);
  const { pieces } = piecesOf(Buffer.concat([input.subarray(0, 1), opening.bytes]));
  return { ...opening, pieces };
}

function checkSecrecy(sent: Buffer): void {
  for (const secret of SECRETS) check(!sent.includes(secret), 'a secret was sent');
}

function secretEnvironment(): MemoryEnvironment {
  return { ...memoryEnvironment(), random, secrets };
}

const rpcEnv = secretEnvironment();
let server: RpcServer | undefined;
let calls = 0;

const authRpcServer: Fuzzer = {
  name: 'auth-rpc-server',
  what: 'the RPC server with a secret: who has not proved itself gets nothing, and nothing of it is looked at',
  form: 'bytes',
  tokens: [RPC_HELLO, encodeHello(), targetOf('rpc'), Buffer.alloc(32), rpcFrame(FrameType.call, 1, ['echo', {}])],
  seeds: () => {
    const call = rpcFrame(FrameType.call, 1, ['echo', { a: 1 }]);
    const greeting = [RPC_HELLO, challengeOf('rpc', 3)];
    return [0, 1, 44, 140].flatMap((mode) => [
      inPieces(mode, ...greeting, Buffer.alloc(64), call),
      inPieces(mode, ...greeting, Buffer.alloc(32), Buffer.alloc(32, 1), call),
      inPieces(mode, ...greeting, Buffer.alloc(64, 1), call),
      inPieces(mode, encodeHello(), call),
    ]);
  },
  async run(input) {
    server ??= await startServer();
    const own = Buffer.concat([RPC_HELLO, challengeOf('rpc', 7)]);
    const { pieces, isProved, greeting } = openedInput(input, { plane: 'rpc', role: 'client', own });
    calls = 0;
    const before = server.stats().calls;
    const socket = rpcEnv.network.accept();
    await socket.feed(pieces);
    await turn();
    const { sent } = socket;
    checkSecrecy(sent);
    check(own.subarray(0, sent.length).equals(sent.subarray(0, own.length)), 'another greeting');
    // What follows may have ended it before its answer was on the way.
    if (isProved && !socket.destroyed) {
      const answer = sent.subarray(own.length, own.length + PROOF_BYTES);
      check(
        proofs('rpc', 'server', [greeting, own]).some((proof) => proof.equals(answer)),
        'no proof of its own',
      );
    } else if (!isProved) {
      check(sent.length <= own.length, `${sent.length} bytes for who has proved nothing`);
      check(calls === 0 && server.stats().calls === before, 'a call of who has proved nothing');
    }
    await socket.hangUp();
    server.verify();
    check(server.stats().connections === 0, 'an ended connection is still counted');
    check(rpcEnv.clock.pendingCount === 0, 'a timer of an ended connection');
  },
  async close() {
    await server?.stop();
    server = undefined;
  },
};

async function startServer(): Promise<RpcServer> {
  const started = new RpcServer({ ...ENDPOINT, env: rpcEnv });
  started.handle('echo', (params) => {
    calls++;
    return params;
  });
  await started.start();
  return started;
}

const authRpcClient: Fuzzer = {
  name: 'auth-rpc-client',
  what: 'the RPC client with a secret: it asks nothing of who has not proved itself, and believes nothing',
  form: 'bytes',
  tokens: [RPC_HELLO, encodeHello(), targetOf('rpc'), Buffer.alloc(32), rpcFrame(FrameType.answer, 1, {})],
  seeds: () => {
    const answer = rpcFrame(FrameType.answer, 1, { a: 1 });
    const greeting = [RPC_HELLO, challengeOf('rpc', 3)];
    return [0, 1, 140].flatMap((mode) => [
      inPieces(mode, ...greeting, Buffer.alloc(32), answer),
      inPieces(mode, ...greeting, Buffer.alloc(32, 1), answer),
      inPieces(mode, encodeHello(), answer),
    ]);
  },
  async run(input) {
    const env = secretEnvironment();
    const own = Buffer.concat([RPC_HELLO, challengeOf('rpc', 7)]);
    const { pieces, isProved } = openedInput(input, { plane: 'rpc', role: 'server', own });
    const client = new RpcClient({ env });
    let ending: 'answered' | 'failed' | undefined;
    const call = client.call(ENDPOINT, 'private method', {}).then(
      () => {
        ending = 'answered';
      },
      (error: unknown) => {
        // What was answered as an error is an answer too; the connection's own failures are told by their codes.
        const isOwn =
          error instanceof MeshCacheError && ['ERR_UNREACHABLE', 'ERR_AUTH', 'ERR_CLOSED'].includes(error.code);
        ending = isOwn ? 'failed' : 'answered';
      },
    );
    const socket = env.network.connections[0] as MemorySocket;
    socket.connected();
    await socket.feed(pieces);
    await turn();
    const { sent } = socket;
    checkSecrecy(sent);
    check(isProved || !sent.includes('private method'), 'asks who has proved nothing');
    check(!isProved || socket.destroyed || sent.includes('private method'), 'asks nothing of a member');
    if (!isProved) {
      check(ending !== 'answered', 'believes who has proved nothing');
      check(sent.length <= own.length + 2 * PROOF_BYTES, `${sent.length} bytes to who has proved nothing`);
    }
    await socket.hangUp();
    await client.close();
    await call;
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

const PAGE = new Uint8Array(64).fill(0x5a);
const START = 0x100_0000;
const registrations = new Registrations(() => {});
registrations.add({
  rkey: 1,
  start: START,
  length: PAGE.length,
  regionStart: START,
  segmentBytes: PAGE.length,
  segments: [PAGE],
  registeredFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
  liveFlag: new Int32Array(new SharedArrayBuffer(4)).fill(1),
});
const limits = tcpLimits();

const authTcpServer: Fuzzer = {
  name: 'auth-tcp-server',
  what: 'the TCP data plane’s server with a secret: no byte of a page for who has not proved itself',
  form: 'bytes',
  tokens: [DATA_HELLO, encodeDataHello(), targetOf('data'), Buffer.alloc(32)],
  seeds: () => {
    const request = requestFrame(1, [{ rkey: 1, addr: BigInt(START), length: PAGE.length }]);
    const greeting = [DATA_HELLO, challengeOf('data', 3)];
    return [0, 1, 64, 140].flatMap((mode) => [
      inPieces(mode, ...greeting, Buffer.alloc(64), request),
      inPieces(mode, ...greeting, Buffer.alloc(32, 1), Buffer.alloc(32), request),
      inPieces(mode, ...greeting, Buffer.alloc(64, 1), request),
      inPieces(mode, encodeDataHello(), request),
    ]);
  },
  async run(input) {
    const own = Buffer.concat([DATA_HELLO, challengeOf('data', 7)]);
    const { pieces, isProved, greeting } = openedInput(input, { plane: 'data', role: 'client', own });
    const { clock } = memoryEnvironment();
    const counters = new ServingCounters();
    const socket = new MemorySocket();
    let openings = 0;
    const parts = {
      registrations,
      counters,
      limits,
      clock,
      random,
      secrets,
      target: `data ${ENDPOINT.host}:${ENDPOINT.port}`,
      onOpen: () => openings++,
      onUnauthenticated() {},
    };
    new ServingConnection({ socket: socket as never, ...parts });
    await socket.feed(pieces);
    await turn();
    const { sent } = socket;
    checkSecrecy(sent);
    check(sent.subarray(0, own.length).equals(own), 'another greeting');
    check(openings === Number(isProved), isProved ? 'refused a member' : 'open for who has proved nothing');
    if (isProved) {
      const answer = sent.subarray(own.length, own.length + PROOF_BYTES);
      check(
        proofs('data', 'server', [greeting, own]).some((proof) => proof.equals(answer)),
        'no proof of its own',
      );
    } else {
      check(sent.length === own.length, `${sent.length} bytes for who has proved nothing`);
      check(counters.value('servedOps') + counters.value('refusedOps') === 0, 'a request of who has proved nothing');
    }
    await socket.hangUp();
    check(clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

const authTcpReader: Fuzzer = {
  name: 'auth-tcp-reader',
  what: 'the TCP data plane’s reader with a secret: no page of who has not proved itself',
  form: 'bytes',
  tokens: [
    DATA_HELLO,
    encodeDataHello(),
    targetOf('data'),
    Buffer.alloc(32),
    responseHeader(1, 1, { payloadBytes: 64 }),
  ],
  seeds: () => {
    const response = [responseHeader(1, 1, { payloadBytes: PAGE.length }), PAGE];
    const greeting = [DATA_HELLO, challengeOf('data', 3)];
    return [0, 1, 140].flatMap((mode) => [
      inPieces(mode, ...greeting, Buffer.alloc(32), ...response),
      inPieces(mode, ...greeting, Buffer.alloc(32, 1), ...response),
      inPieces(mode, encodeDataHello(), ...response),
    ]);
  },
  async run(input) {
    const env = secretEnvironment();
    const own = Buffer.concat([DATA_HELLO, challengeOf('data', 7)]);
    const { pieces, isProved } = openedInput(input, { plane: 'data', role: 'server', own });
    const parts = { staging: new Uint8Array(STAGING_BYTES), counters: new ReadCounters(), limits, env };
    const authFailures = new AuthFailures('data', env);
    const connection = new ReadConnection({
      endpoint: ENDPOINT,
      ...parts,
      authFailures,
      times: new AnswerTimes(),
      onAnswering() {},
      onOverdue() {},
      onClose() {},
      onMoved() {},
    });
    const batch = new ReadBatch(1);
    const request = new ReadRequest(batch);
    request.beginOp({ index: 0, rkey: 1, remoteAddr: START, length: PAGE.length, stamp: 0, checksum: NO_CHECKSUM });
    request.addPiece(new Uint8Array(PAGE.length), 0, PAGE.length);
    request.endOp();
    connection.submit(request);
    const socket = env.network.connections[0] as MemorySocket;
    socket.connected();
    await socket.feed(pieces);
    await turn();
    const { sent } = socket;
    checkSecrecy(sent);
    check(isProved === sent.includes('MCRQ'), isProved ? 'asks nothing of a member' : 'asks who has proved nothing');
    await socket.hangUp();
    const [isRead] = await batch.done;
    check(isProved || isRead === false, 'believes who has proved nothing');
    check(env.clock.pendingCount === 0, 'a timer of an ended connection');
  },
};

export const authentication: readonly Fuzzer[] = [authRpcServer, authRpcClient, authTcpServer, authTcpReader];
