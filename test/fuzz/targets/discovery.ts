import { isDeepStrictEqual } from 'node:util';
import { MeshCacheError, ProtocolError } from '../../../src/base/errors.js';
import { MEMBERS_MAX_COUNT } from '../../../src/base/limits.js';
import { asMap } from '../../../src/discovery/messages/member-table.js';
import { decodeAnswer, encodeRoster } from '../../../src/discovery/messages/wire.js';
import { DiscoveryServer } from '../../../src/discovery/server.js';
import { encodeHello, FrameType } from '../../../src/rpc/frame.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { NodeInfo } from '../../../src/types.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { turn } from '../memory-socket.js';
import { framesIn, rpcFrame } from '../rpc-bytes.js';
import { receivedValue, valueInput } from '../values.js';

const codec = new MessageCodec();
const SETTINGS = { vnodes: 160, directoryReplicas: 2, verifyReads: true, reuseQuarantineMs: 1000 };
const NODE = new NodeInfo({ nodeId: 'a', controlHost: '10.0.0.1', controlPort: 9, incarnation: 5 });

/** A list of who is there is bytes within the answer: here it is a value, so that it is changed as one. */
export const discoveryAnswers: Fuzzer = {
  name: 'discovery-answers',
  what: 'answers of discovery masters, and the list of members in them',
  form: 'value',
  seeds: () => [
    valueInput({ status: 'ok', master_id: 'm', version: 3, age_ms: 10 }),
    valueInput({
      status: 'refused',
      master_id: 'm',
      version: 3,
      age_ms: 10,
      refused_by: 'a',
      differences: [
        ['vnodes', 100, 160],
        ['verify_reads', false, true],
      ],
    }),
    valueInput({
      status: 'ok',
      master_id: 'ab'.repeat(8),
      version: 2 ** 40,
      age_ms: 0,
      roster: {
        members: [NODE.toDict() as never],
        gone: [
          ['b', 1],
          ['c', 2],
        ],
      },
    }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const { roster, ...rest } = asPlain(received.value);
    const isMap = typeof roster === 'object' && roster !== null && !(roster instanceof Uint8Array);
    const sent = isMap ? { ...rest, roster: codec.encode(roster) } : received.value;
    const answer = unlessRefused([ProtocolError], () => decodeAnswer(codec, sent))?.value;
    if (answer?.roster === undefined) return;
    check(answer.roster.members.size <= MEMBERS_MAX_COUNT, 'too many members');
    for (const [nodeId, info] of answer.roster.members) check(nodeId === info.nodeId, 'listed under another name');
    for (const form of ['maps', 'rows'] as const) {
      const again = decodeAnswer(codec, { ...asPlain(sent), roster: encodeRoster(codec, answer.roster, form) });
      const whole = { ...answer, roster: { ...answer.roster, base: undefined, removed: [] } };
      check(isDeepStrictEqual(again, whole), `another answer out of its own list as ${form}`);
    }
  },
};

const METHODS = [
  'discovery.register',
  'discovery.heartbeat',
  'discovery.leave',
  'discovery.known',
  'discovery.members',
];
const CALLS_MAX_COUNT = 12;

/** A list of calls and of turns of the clock, on one connection to a new master. */
export const discoveryServer: Fuzzer = {
  name: 'discovery-server',
  what: 'a discovery master: every request is answered or refused, and members are what was registered and is alive',
  form: 'value',
  seeds: () => {
    const heartbeat = { node_id: 'a', incarnation: 5, master_id: '', version: 0, wait_ms: 100 };
    const register = { node: NODE.toDict() as never };
    const settings = { vnodes: 160, directory_replicas: 2, verify_reads: true, reuse_quarantine_ms: 1000 };
    return [
      valueInput([
        ['discovery.register', register],
        ['discovery.heartbeat', heartbeat],
        500,
        ['discovery.members', {}],
      ]),
      valueInput([['discovery.register', register], ['discovery.leave', { node_id: 'a', incarnation: 5 }], 7000]),
      valueInput([
        ['discovery.register', { ...register, settings }],
        ['discovery.register', { ...register, settings: { ...settings, vnodes: 100, verify_reads: false } }],
      ]),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const env = memoryEnvironment();
    const server = new DiscoveryServer('127.0.0.1', 0, { env, owner: { nodeId: 'owner', settings: SETTINGS } });
    await server.start();
    const socket = env.network.accept();
    await socket.feed([encodeHello()]);
    let calls = 0;
    for (const step of received.value.slice(0, CALLS_MAX_COUNT)) {
      if (typeof step === 'number') env.clock.advance(Math.min(10_000, Math.max(0, step || 0)));
      if (!Array.isArray(step) || !METHODS.includes(step[0] as string)) continue;
      await socket.feed([rpcFrame(FrameType.call, ++calls, [step[0], step[1]])]);
      server.verify();
    }
    // Heartbeats wait for at most one interval.
    env.clock.advance(2_000);
    await turn();
    check(!socket.destroyed, 'a connection ended for its requests');
    const { frames } = framesIn(socket.sent);
    check(frames.length === calls, `${frames.length} answers to ${calls} calls`);
    for (const { type, message } of frames) checkAnswer(type, codec.decode(message));
    for (const [nodeId, info] of server.members()) {
      check(nodeId === info.nodeId && nodeId !== '' && info.controlPort > 0, 'a member that none can be');
    }
    // In steps: a master that was frozen itself for so long gives its members time.
    for (let i = 0; i < 20; i++) {
      env.clock.advance(500);
      await turn();
    }
    server.verify();
    check(server.members().size === 0, 'a silent member stays');
    await server.stop();
  },
};

function checkAnswer(type: number, value: unknown): void {
  const fields = asMap(value);
  if (type === FrameType.answer) {
    if (Object.keys(fields).length > 0) decodeAnswer(codec, value);
    return;
  }
  check(
    ['ERR_PROTOCOL', 'ERR_ARGUMENT', 'ERR_OVERLOADED'].includes(String(fields.code)),
    `failed with ${String(fields.code)}: ${String(fields.message)}`,
  );
}

function asPlain(value: unknown): Readonly<Record<string, unknown>> {
  try {
    return asMap(value);
  } catch (error) {
    if (error instanceof MeshCacheError) return {};
    throw error;
  }
}
