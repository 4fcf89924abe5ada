import { WorkTurns } from '../../../src/base/concurrency/work-turns.js';
import type { RandomSource } from '../../../src/base/environment/random.js';
import {
  SERVED_STATES,
  type ServedEvent,
  type ServedState,
  STEPS_FROM,
} from '../../../src/net/served/connection-states.js';
import type { ServedPeer } from '../../../src/net/served/served-connection.js';
import { ServedConnections } from '../../../src/net/served/served-connections.js';
import { ManualClock } from '../../_support/clock.js';
import { PlainProtocol, SERVED_LIMITS } from '../../_support/net/served.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { MemorySocket, turn } from '../memory-socket.js';

const LIMITS = {
  ...SERVED_LIMITS,
  outputMaxBytes: 2_000,
  allOutputMaxBytes: 3_000,
  allInFlightMaxCount: 6,
  allInFlightMaxBytes: 120,
  grantedCount: 1,
  grantedBytes: 20,
};
const CONNECTIONS_COUNT = 2;

/** A protocol that does what the input says, and knows what it must have been told. */
class FuzzedProtocol extends PlainProtocol {
  /** Bytes of each request in flight. */
  readonly requests: number[] = [];
  holdsCount = 0;
  /** The bytes that came while it received, all of the same value. */
  fedBytes = 0;
  state: ServedState = 'greeting';
  /** What it does when it is told something. */
  reaction: 'nothing' | 'finish' | 'end' | 'close' | 'settle' | 'write' = 'nothing';
  readonly entries: ServedState[] = [];
  readonly #clock: ManualClock;

  constructor(socket: MemorySocket, world: World, peer: ServedPeer) {
    super(socket, world.connections, peer);
    this.#clock = world.clock;
  }

  override entered(state: ServedState, event: ServedEvent): void {
    super.entered(state, event);
    check(STEPS_FROM[this.state][event] === state, `${event} leads from ${this.state} to ${state}`);
    check(this.served.state === state, 'told of a state that it is not in');
    const isLater = SERVED_STATES.indexOf(state) > SERVED_STATES.indexOf(this.state);
    check(isLater, `back from ${this.state} to ${state}`);
    this.state = state;
    this.entries.push(state);
    this.#react();
  }

  override received(bytes: Buffer): void {
    check(STEPS_FROM[this.served.state].received === 'told', `bytes while ${this.served.state}`);
    super.received(bytes);
    // Taking bytes takes time, so that what comes has to wait for its turn.
    this.#clock.advance(1);
  }

  override slow(awaited: 'rate' | 'end'): void {
    super.slow(awaited);
    check(STEPS_FROM[this.served.state].slow === 'told', `slow while ${this.served.state}`);
    this.#react();
  }

  override drained(): void {
    super.drained();
    this.#react();
  }

  settleAll(): void {
    for (let bytes = this.requests.pop(); bytes !== undefined; bytes = this.requests.pop()) this.served.settle(bytes);
    for (; this.holdsCount > 0; this.holdsCount--) this.served.letGo();
  }

  write(bytes: number): void {
    if (this.served.isClosed || this.socket.writableEnded) return;
    this.socket.write(Buffer.alloc(bytes));
    this.served.wrote();
  }

  #react(): void {
    if (this.reaction === 'settle') this.settleAll();
    else if (this.reaction === 'finish') this.served.finish('reaction');
    else if (this.reaction === 'end') this.served.end('reaction');
    else if (this.reaction === 'close') this.served.close('reaction');
    else if (this.reaction === 'write') this.write(100);
  }

  override verify(): void {
    const { served } = this;
    const bytes = this.requests.reduce((sum, each) => sum + each, 0);
    check(served.inFlightCount === this.requests.length && served.inFlightBytes === bytes, 'counted otherwise');
    const isIdle = this.requests.length === 0 && this.holdsCount === 0;
    if (isIdle) check(served.state !== 'finishing' && served.state !== 'closed', `idle, and still ${served.state}`);
    else check(served.state !== 'ended', 'ended while something is in progress');
    const came = this.receivedBytes.reduce((sum, { length }) => sum + length, 0);
    check(came <= this.fedBytes, 'more was handed out than has come');
    for (const state of ['closed', 'ended'] as const) {
      check(this.entries.filter((each) => each === state).length <= 1, `${state} twice`);
    }
  }
}

/** Two connections of one door, and what happens to them. */
class World {
  readonly clock = new ManualClock();
  readonly connections: ServedConnections<FuzzedProtocol>;
  readonly sockets: MemorySocket[] = [];
  readonly protocols: FuzzedProtocol[] = [];
  waitsCount = 0;

  constructor(isFair: boolean) {
    const pauses = { sentAfterMs: () => this.clock.nowMs() };
    const fairness = isFair ? { turns: new WorkTurns(this.clock), pauses } : undefined;
    this.connections = new ServedConnections(this.clock, LIMITS, fairness);
    for (let i = 0; i < CONNECTIONS_COUNT; i++) {
      const socket = new MemorySocket();
      const peer = { origin: `${i}`, sharer: { one: `${i}`, group: 'g' } };
      const protocol = new FuzzedProtocol(socket, this, peer);
      this.sockets.push(socket);
      this.protocols.push(protocol);
      this.connections.add(protocol);
    }
  }

  /** Lets one thing happen to one connection. */
  happen(which: number, what: number, amount: number): void {
    const protocol = this.protocols[which] as FuzzedProtocol;
    const socket = this.sockets[which] as MemorySocket;
    const action = ACTIONS[what % ACTIONS.length] as Action;
    action(this, { protocol, socket, served: protocol.served, amount });
  }

  verify(): void {
    this.connections.verify('fuzz');
    for (const protocol of this.protocols) {
      protocol.verify();
      check(protocol.served.state === protocol.state, 'a state that nobody was told of');
    }
    const isOver = this.protocols.every(({ served }) => served.isClosed);
    check(!isOver || this.clock.pendingCount === 0, 'a timer of closed connections');
  }

  /** Ends everything, in the order in which it would: the peers go, then the work ends. */
  async end(): Promise<void> {
    for (const socket of this.sockets) await socket.hangUp();
    for (const { served } of this.protocols) check(served.isClosed, 'the peer has gone, and it is not closed');
    for (const protocol of this.protocols) {
      protocol.reaction = 'nothing';
      protocol.settleAll();
    }
    await turn();
    for (const { served, entries } of this.protocols) {
      check(served.state === 'ended', `nothing is in progress, and it is ${served.state}`);
      for (const state of ['closed', 'ended'] as const) {
        check(entries.filter((each) => each === state).length === 1, `${state} not once`);
      }
    }
    check(this.waitsCount === 0, 'somebody waits for a connection that has ended');
    check(this.connections.unendedCount === 0 && this.connections.inFlightCount === 0, 'something is left of them');
    check(this.clock.pendingCount === 0, 'a timer of ended connections');
  }
}

interface Subject {
  readonly protocol: FuzzedProtocol;
  readonly socket: MemorySocket;
  readonly served: FuzzedProtocol['served'];
  readonly amount: number;
}

type Action = (world: World, subject: Subject) => void;

const REACTIONS = ['nothing', 'finish', 'end', 'close', 'settle', 'write'] as const;

function counted(world: World, wait: Promise<void>): void {
  world.waitsCount++;
  void wait.then(() => world.waitsCount--);
}

const ACTIONS: readonly Action[] = [
  // Bytes come, in pieces of any length.
  (_, { protocol, socket, served, amount }) => {
    if (socket.destroyed || socket.isPaused()) return;
    if (STEPS_FROM[served.state].received === 'told') protocol.fedBytes += amount;
    socket.emit('data', Buffer.alloc(amount, 7));
  },
  // The system takes nothing more, one write, or everything.
  (_, { socket }) => {
    socket.isStuck = true;
  },
  (_, { socket }) => socket.takeOne(),
  (_, { socket }) => {
    socket.isStuck = false;
    socket.takeOne();
  },
  (_, { protocol, amount }) => protocol.write(4 * amount + 1),
  // Time passes; what is due at the end of a greeting or a window happens.
  (world, { amount }) => world.clock.advance(amount),
  (world, { protocol, served, amount }) => {
    const wasGreeting = served.state === 'greeting';
    world.clock.advance(LIMITS.greetingTimeoutMs + amount);
    check(!wasGreeting || served.state !== 'greeting', 'greets for ever');
    check(!wasGreeting || protocol.entries.length > 0, 'nobody was told');
  },
  (_, { protocol, served, amount }) => {
    if (served.state === 'ended') return;
    const refusal = served.tooMuch(amount);
    const isCountFull = protocol.requests.length >= LIMITS.inFlightMaxCount;
    const isBytesFull = served.inFlightBytes + amount > LIMITS.inFlightMaxBytes;
    check((refusal === 'count') === isCountFull, 'bounds of the count');
    check((refusal === 'bytes') === (isBytesFull && !isCountFull), 'bounds of the bytes');
    if (refusal !== undefined) return;
    protocol.requests.push(amount);
    served.begin(amount);
  },
  // Answers come in any order.
  (_, { protocol, served, amount }) => {
    const [bytes] = protocol.requests.splice(amount % Math.max(1, protocol.requests.length), 1);
    if (bytes !== undefined) served.settle(bytes);
  },
  (_, { protocol, served }) => {
    if (served.state === 'ended') return;
    protocol.holdsCount++;
    served.hold();
  },
  (_, { protocol, served }) => {
    if (protocol.holdsCount === 0) return;
    protocol.holdsCount--;
    served.letGo();
  },
  (_, { served }) => {
    if (served.state === 'greeting') served.greeted();
  },
  (_, { served }) => served.opened(),
  (_, { served }) => served.finish('asked'),
  (_, { served }) => served.end('asked'),
  (_, { served }) => served.close('asked'),
  (_, { served }) => served.hangUp('asked'),
  (world) => {
    world.connections.greeting.dropOldest();
  },
  (_, { socket }) => socket.emit('end'),
  (_, { socket, served }) => {
    socket.emit('error', new Error('reset'));
    check(served.isClosed, 'goes on after an error of its socket');
  },
  (_, { protocol, served, socket, amount }) => {
    protocol.mustWait = amount % 2 === 1;
    served.updateReading();
    if (STEPS_FROM[served.state].received !== 'told') return;
    if (protocol.mustWait) check(socket.isPaused(), 'reads what is to wait');
  },
  (_, { served }) => served.awaitAtRate(),
  (_, { served }) => served.awaitWhole(),
  (_, { served }) => served.messageCame(),
  (world, { served }) => counted(world, served.taken()),
  (world, { served }) => counted(world, served.whenEnded()),
  (_, { protocol, amount }) => {
    protocol.reaction = REACTIONS[amount % REACTIONS.length] as (typeof REACTIONS)[number];
  },
  (world) => world.connections.close('all'),
];

/** What happens, as triples of bytes: to which connection and how it ends, what, how much. */
export const servedConnection: Fuzzer = {
  name: 'served-connection',
  what: 'the life of accepted connections: by their table, all that is in progress counted, closed and ended once, no timer left',
  form: 'bytes',
  inputMaxBytes: 300,
  seeds: (random: RandomSource) => [
    ...ACTIONS.map((_, i) => Buffer.from([0, i, 50, 1, i, 200, 0, i, 3])),
    ...Array.from({ length: 20 }, () => Buffer.from(random.bytes(150))),
  ],
  async run(input) {
    const world = new World(input.length % 2 === 0);
    for (let at = 0; at + 2 < input.length; at += 3) {
      const [who, what, amount] = [input[at] as number, input[at + 1] as number, input[at + 2] as number];
      world.happen(who % CONNECTIONS_COUNT, what, amount);
      world.verify();
      if (who >= 192) await turn();
    }
    await turn();
    world.verify();
    await world.end();
  },
};
