import { isDeepStrictEqual } from 'node:util';
import { ClosedError, MeshCacheError } from '../../../src/base/errors.js';
import { DISCOVERY_DEPARTURES_MAX_COUNT, MEMBERS_MAX_COUNT } from '../../../src/base/limits.js';
import { MasterLink } from '../../../src/discovery/masters/master-link.js';
import { asMap } from '../../../src/discovery/messages/member-table.js';
import {
  DiscoveryMethod,
  decodeAnswer,
  type MasterAnswer,
  type OwnRoster,
  type Roster,
  rosterAfter,
} from '../../../src/discovery/messages/wire.js';
import { DiscoveryServer } from '../../../src/discovery/server.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { encodeHello, FrameType } from '../../../src/rpc/frame.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { NodeInfo } from '../../../src/types.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { type MemoryEnvironment, memoryEnvironment } from '../memory-environment.js';
import { type MemorySocket, turn } from '../memory-socket.js';
import { framesIn, rpcFrame } from '../rpc-bytes.js';
import { receivedValue, valueInput } from '../values.js';

const codec = new MessageCodec();
const STEPS_MAX_COUNT = 12;
const HEARTBEAT_MS = 2_000;
const TTL_MS = 6_000;
const ME = nodeOf('me', 5);

function nodeOf(nodeId: string, incarnation: number): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: 'h', controlPort: 9, incarnation });
}

/** A list of who is there as it travels. */
function rosterBytes(value: unknown): unknown {
  const isMap = typeof value === 'object' && value !== null && !(value instanceof Uint8Array) && !Array.isArray(value);
  return isMap ? codec.encode(value) : value;
}

/** A master that answers as the input says: what is asked waits until it has an answer. */
class ScriptedMaster {
  waiting: { readonly params: Readonly<Record<string, unknown>>; answer(value: unknown): void } | undefined;

  asRpc(): RpcClient {
    return { call: (...args: never[]) => this.#call(...(args as never as [unknown, string, object, object])) } as never;
  }

  #call(_endpoint: unknown, _method: string, params: object, options: object): Promise<unknown> {
    const { signal } = options as { signal: AbortSignal };
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(new ClosedError('the link')));
      this.waiting = {
        params: params as Record<string, unknown>,
        answer: (value) => {
          this.waiting = undefined;
          resolve(value);
        },
      };
    });
  }
}

/** A list of answers of one master, and of turns of the clock. */
export const masterAnswers: Fuzzer = {
  name: 'master-answers',
  what: 'what a node believes of a discovery master, answer by answer: lists and changes of lists',
  form: 'value',
  seeds: () => {
    const ok = { status: 'ok', master_id: 'm', age_ms: 10 };
    const a = nodeOf('a', 1).toDict();
    return [
      [
        { ...ok, version: 3, roster: { members: [a], gone: [['b', 1]] } },
        { ...ok, version: 4, roster: { members: [nodeOf('b', 2).toDict()], gone: [], base: 3, removed: ['a'] } },
        2000,
        { ...ok, version: 4, roster: null },
        { ...ok, status: 'unknown', version: 4 },
      ],
      [
        { ...ok, status: 'replaced', version: 1 },
        9000,
        { ...ok, status: 'refused', version: 1, refused_by: 'b', differences: [['vnodes', 100, 160]] },
        2000,
        { ...ok, version: 4, roster: { members: [a], gone: [], base: 2 } },
      ],
    ].map((list) => valueInput(list as never));
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const env = memoryEnvironment();
    const master = new ScriptedMaster();
    const link = new MasterLink({
      endpoint: { host: 'h', port: 1 },
      self: () => ME,
      rpc: master.asRpc(),
      codec,
      env,
      heartbeatIntervalMs: HEARTBEAT_MS,
      memberTtlMs: TTL_MS,
      onChange() {},
      onFailure: (error) => check(error instanceof MeshCacheError && error.code !== 'ERR_REMOTE', () => String(error)),
      isElsewhere: () => false,
      onUnknown: () => true,
      onForgotten() {},
      onReplaced() {},
    });
    link.start();
    for (const step of (received.value as unknown[]).slice(0, STEPS_MAX_COUNT)) {
      await turn();
      if (typeof step === 'number') env.clock.advance(Math.min(10_000, Math.max(0, step || 0)));
      if (typeof step !== 'object' || step === null) continue;
      // Pauses are not longer.
      if (master.waiting === undefined) env.clock.advance(HEARTBEAT_MS);
      await turn();
      const isMap = !Array.isArray(step) && !(step instanceof Uint8Array);
      master.waiting?.answer(isMap ? { ...step, roster: rosterBytes((step as { roster?: unknown }).roster) } : step);
      await turn();
      if (link.view !== undefined) checkRoster(link.view);
    }
    link.drop();
    await turn();
    check(env.clock.pendingCount === 0, 'a timer of a link that has ended');
  },
};

function checkRoster({ members, gone }: Roster): void {
  check(members.size <= MEMBERS_MAX_COUNT, () => `${members.size} members`);
  check(gone.length <= DISCOVERY_DEPARTURES_MAX_COUNT, () => `${gone.length} departures`);
  for (const [nodeId, info] of members) check(nodeId === info.nodeId, 'listed under another name');
}

/** Steps: [who joins, which start], [who leaves, which start, 0], and milliseconds. */
export const discoveryDeltas: Fuzzer = {
  name: 'discovery-deltas',
  what: 'changes of the list of members: who has followed them all has the list that a new one gets',
  form: 'value',
  seeds: () => [
    valueInput([['a', 1], ['b', 1], 500, ['c', 1], ['a', 1, 0], 500, ['a', 2], ['b', 3], 2500]),
    valueInput([['a', 1], ['b', 1], ['c', 1], ['d', 1], ['e', 1], 400, ['a', 1, 0], 900, ['a', 1], 5900, 700]),
  ],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const env = memoryEnvironment();
    const server = new DiscoveryServer('127.0.0.1', 0, { env });
    await server.start();
    const follower = new Follower(env);
    await follower.start();
    for (const step of (received.value as unknown[]).slice(0, STEPS_MAX_COUNT)) {
      if (typeof step === 'number') env.clock.advance(Math.min(TTL_MS, Math.max(0, step || 0)));
      if (Array.isArray(step)) await follower.tell(step as unknown[]);
      await turn();
      await follower.follow();
      server.verify();
    }
    await follower.stop();
    await server.stop();
  },
};

/** A member that asks for what has changed, and compares. */
class Follower {
  readonly #socket: MemorySocket;
  #calls = 0;
  #last: MasterAnswer | undefined;
  #roster: OwnRoster | undefined;

  constructor(env: MemoryEnvironment) {
    this.#socket = env.network.accept();
  }

  start(): Promise<void> {
    return this.#socket.feed([encodeHello()]);
  }

  async tell([nodeId, incarnation, isLeaving]: readonly unknown[]): Promise<void> {
    const [text, start] = [typeof nodeId === 'string' ? nodeId.slice(0, 9) : '', incarnation];
    if (isLeaving === 0) await this.#call(DiscoveryMethod.leave, { node_id: text, incarnation: start });
    else if (text !== ME.nodeId)
      await this.#call(DiscoveryMethod.register, { node: { ...nodeOf(text, 0).toDict(), incarnation: start } });
  }

  async follow(): Promise<void> {
    const { masterId = '', version = 0 } = this.#last ?? {};
    const known = { node_id: ME.nodeId, incarnation: ME.incarnation, master_id: masterId, version };
    let answer = await this.#ask(DiscoveryMethod.heartbeat, { ...known, wait_ms: 0, changes: true });
    if (answer.status === 'unknown') answer = await this.#ask(DiscoveryMethod.register, { node: ME.toDict() });
    check(answer.status === 'ok', `status ${answer.status}`);
    if (answer.roster !== undefined) {
      this.#roster = rosterAfter(answer.masterId === masterId ? this.#roster : undefined, answer.roster, version);
      check(this.#roster !== undefined, 'changes of another list than was said to be known');
    }
    const isNews = answer.roster !== undefined;
    this.#last = answer;
    if (!isNews) return;
    const { roster: whole } = await this.#ask(DiscoveryMethod.members, {});
    check(whole !== undefined && whole.base === undefined, 'no whole list');
    check(isDeepStrictEqual(this.#roster?.members, whole.members), 'another list than a new member gets');
    for (const departure of whole.gone) {
      check(this.#roster?.gone.some((other) => isDeepStrictEqual(other, departure)) ?? false, 'a departure is missing');
    }
  }

  async stop(): Promise<void> {
    check(!this.#socket.destroyed, 'a connection ended for its requests');
    await this.#socket.hangUp();
  }

  async #ask(method: string, params: object): Promise<MasterAnswer> {
    return decodeAnswer(codec, await this.#call(method, params));
  }

  /** Undefined: refused. */
  async #call(method: string, params: object): Promise<unknown> {
    await this.#socket.feed([rpcFrame(FrameType.call, ++this.#calls, [method, params])]);
    await turn();
    const frame = framesIn(this.#socket.sent).frames.find(({ requestId }) => requestId === this.#calls);
    check(frame !== undefined, 'no answer');
    return frame.type === FrameType.answer ? asMap(codec.decode(frame.message)) : undefined;
  }
}
