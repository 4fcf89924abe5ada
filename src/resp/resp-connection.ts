import { assert } from '../base/assert.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { Connection } from '../base/environment/network.js';
import { ClosedError, ProtocolError } from '../base/errors.js';
import {
  RECEIVING_MIN_BYTES_PER_S,
  RESP_DEADLINE_MS,
  RESP_GATHERED_MAX_BYTES,
  RESP_SENT_MAX_MS,
} from '../base/limits.js';
import { ReceivingMemory } from '../net/receiving-memory.js';
import type { ServedEvent, ServedState } from '../net/served/connection-states.js';
import { ServedConnection, type ServedProtocol } from '../net/served/served-connection.js';
import { callTime } from '../store/call/call-options.js';
import type { RespAccess } from './access/resp-access.js';
import {
  CommandError,
  type CommandSpec,
  isChange,
  type RespCommand,
  type RespSession,
  textOfError,
} from './commands/command.js';
import { commandOf } from './commands/command-table.js';
import { NO_AUTH } from './commands/connection-commands.js';
import { LargeArguments } from './large-arguments.js';
import type { RespServer } from './resp-server.js';
import { RespOutput } from './values/resp-output.js';
import { type WaitingCommand, WaitingCommands } from './waiting-commands.js';
import { type Answer, encodeAnswer, errorAnswer, nilOf } from './wire/resp-answers.js';
import { type RespArgument, RespParser } from './wire/resp-parser.js';

/** The client at the other end of a connection. */
export interface RespPeer {
  readonly id: number;
  /** Origin of the connection, for its share of the limits. */
  readonly origin: Sharer;
  /** The user of the connection, and its rights. */
  readonly access: RespAccess;
}

/** The answer to a command that would change something and is refused, because its client may have given it up. */
const SENT_EARLIER = 'TRYAGAIN the node was not running; this may have been sent long ago, and was not carried out';

/** Serves one Redis client: receives its commands, executes them one after the other, and answers in order. */
export class RespConnection implements ServedProtocol {
  readonly served: ServedConnection;
  /** Origin of the connection, for its share of the limits. */
  readonly origin: Sharer;
  /** The client's user, and its rights. */
  readonly access: RespAccess;
  readonly #server: RespServer;
  readonly #id: number;
  /** The share of memory that this connection uses, among all connections of the same origin. */
  readonly #sharer: Sharer;
  readonly #parser: RespParser;
  readonly #output: RespOutput;
  readonly #waiting: WaitingCommands;
  readonly #session: RespSession;
  readonly #large: LargeArguments;
  readonly #abort = new AbortController();
  #isRunning = false;
  /** Whether the waiting commands are not executed yet because more of their pipeline arrives. */
  #isGathering = false;
  /** Bytes that had been received when commands were gathered the last time. */
  #gatheredBytes = 0;
  /** Whether the client has ended its side. */
  #hasEnded = false;
  #countedInBytes = 0;
  #countedOutBytes = 0;

  constructor(socket: Connection, server: RespServer, { id, origin, access }: RespPeer) {
    this.#server = server;
    this.#id = id;
    this.origin = origin;
    this.access = access;
    const { budget, connections, env, memory, valuesBudget } = server;
    const sharer = { one: `connection ${id}`, group: origin.one };
    this.#sharer = sharer;
    this.served = new ServedConnection(socket, connections, this, { origin: origin.one, sharer, areLent: true });
    this.#output = new RespOutput(socket, this.served, env.clock, { budget: valuesBudget, sharer });
    this.#waiting = new WaitingCommands(this.served);
    this.#session = this.#makeSession();
    const holding = new ReceivingMemory(budget, sharer, () => this.#guarded(() => this.#parser.resume()));
    this.#large = new LargeArguments(holding, memory);
    this.#parser = new RespParser({
      onCommand: (args) => this.#onCommand(args),
      beginLarge: (bytes) => this.#beginLarge(bytes),
      reserve: (bytes) => this.#large.reserve(bytes),
      reserveWords: (bytes) => this.#large.reserveWords(bytes),
      grow: (body, bytes) => this.#large.grow(body, bytes),
      isTrusted: () => this.access.isTrusted,
    });
    if (access.isTrusted) this.served.opened();
  }

  get isClosed(): boolean {
    return this.served.isClosed;
  }

  /** Whether reading must pause, because there is no memory for an argument or enough commands wait. */
  get mustWait(): boolean {
    return this.#large.isWaiting || this.served.tooMuch(1) !== undefined;
  }

  received(bytes: Buffer): void {
    this.#guarded(() => this.#parser.receive(bytes));
  }

  drained(): void {}

  /**
   * The client sends nothing more. It may have given up the waiting commands, so only the reads among them are
   * executed.
   */
  peerEnded(): void {
    // What was gathered begins before the end.
    if (this.#isGathering) void this.#run(true);
    this.#hasEnded = true;
    this.#waiting.refuseChanges();
    this.#finish();
  }

  /**
   * Called when a large argument arrives too slowly, because it holds memory that others need, or when a command has
   * not ended in time.
   */
  slow(awaited: 'rate' | 'end'): void {
    if (awaited === 'end') {
      this.close('a command has not ended in time');
      return;
    }
    const { lines, limits } = this.#server;
    const perS = RECEIVING_MIN_BYTES_PER_S;
    const reason = `a command of which less than ${perS} bytes a second have come for ${limits.receivingWindowMs / 1000} s`;
    lines.log('warn', 'redis client disconnected', { client: this.#id, from: this.origin.one, reason }, 'slow');
    this.#refuse(reason);
  }

  entered(state: ServedState, event: ServedEvent): void {
    if (state === 'finishing' || state === 'closed') {
      this.#parser.stop();
      this.#takeLarge()();
      this.#countBytes();
    }
    if (state === 'finishing') {
      void this.#run(true);
    } else if (state === 'closed') {
      if (event === 'replaced') this.#server.replaced(this);
      const { reason } = this.served;
      this.#server.env.log.log('debug', 'redis client disconnected', { client: this.#id, reason });
      this.#waiting.clear();
      this.#abort.abort();
      this.#output.close();
    } else if (state === 'ended') {
      this.#server.ended(this);
    }
  }

  /** Ends the connection if its user no longer exists. */
  usersChanged(): void {
    if (this.access.isGone) this.close('its user is there no more');
  }

  /** Accepts no more commands, finishes those in progress, then ends the connection. Idempotent. */
  finish(): void {
    this.#waiting.clear();
    this.#finish();
  }

  /** Ends the connection and everything in progress. Idempotent. */
  close(reason: string): void {
    this.served.close(reason);
  }

  /** Executes the received commands, then ends the connection. */
  #finish(): void {
    this.served.finish('finished');
  }

  /** Ends receiving a command. Returns a function that releases the memory of its large arguments. */
  #takeLarge(): () => void {
    this.served.messageCame();
    return this.#large.take();
  }

  /** Runs `receive`. If the client violates the protocol, it is told and disconnected. */
  #guarded(receive: () => void): void {
    try {
      receive();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const reason = error.message;
      const fields = { client: this.#id, from: this.origin.one, reason };
      this.#server.lines.log('warn', 'redis client disconnected', fields, 'protocol');
      this.#refuse(reason);
      return;
    }
    if (this.#parser.isWithinCommand && this.#large.count === 0) this.served.awaitWhole();
    this.served.updateReading();
    void this.#run();
  }

  /** Answers with an error after all waiting commands, and ends the connection. */
  #refuse(reason: string): void {
    if (this.isClosed) return;
    this.#waiting.add({ command: `ERR ${reason}`, isAllowed: true, bytes: 0, giveBack: () => {} });
    this.#finish();
  }

  #onCommand(args: RespArgument[]): void {
    const bytes = WaitingCommands.bytesOf(args, this.#large.bytesOf(args));
    const giveBack = this.#takeLarge();
    const spec = commandOf(args);
    const command = typeof spec === 'string' ? spec : this.#commandOf(spec, args.slice(1));
    const isFirstWord = typeof spec !== 'string' && spec.isOpen === true;
    this.#waiting.add({ command, isAllowed: isFirstWord, bytes, giveBack });
    // Whether later commands are allowed is known only after this one. Nothing more of an unauthenticated client is
    // read before that.
    if (!this.access.isTrusted) void this.#run();
  }

  /** Returns the command, or the error to answer instead. */
  #commandOf(spec: CommandSpec, args: RespArgument[]): RespCommand | string {
    const { sentAfterMs } = this.served;
    const isLate = this.#server.env.clock.nowMs() - sentAfterMs > RESP_SENT_MAX_MS;
    return isLate && isChange(spec) ? SENT_EARLIER : { spec, args, sentAfterMs };
  }

  /** Begins a large argument. Returns false if it is dropped, because it is larger than the pool. */
  #beginLarge(bytes: number): boolean {
    if (bytes > this.#server.facts.poolCapacityBytes()) return false;
    this.#large.begin();
    this.served.awaitAtRate();
    return true;
  }

  /**
   * Executes the waiting commands, one batch after the other. Unless `isGathered`, they wait for more of a pipeline that
   * is arriving.
   */
  async #run(isGathered = false): Promise<void> {
    if (isGathered) this.#isGathering = false;
    if (this.#isRunning || this.#isGathering || this.isClosed) return;
    this.#isRunning = true;
    this.served.hold();
    // The first commands are executed at once: while a client is not authenticated, they decide what it may send next.
    while (!this.isClosed && (!this.#output.isFull || (await this.#output.room()))) {
      if (!isGathered && this.#isArriving) {
        void this.#gather();
        break;
      }
      const batch = this.#waiting.takeBatch();
      if (batch.length === 0) break;
      const done = this.#execute(batch);
      if (done !== undefined) {
        this.#output.flush();
        await done;
      }
      for (const { giveBack } of batch) giveBack();
      this.#judge();
      this.served.updateReading();
      const turn = this.#goOn();
      if (turn !== undefined) await turn;
    }
    this.#isRunning = false;
    if (!this.isClosed) {
      this.#output.flush();
      this.#countBytes();
    }
    this.served.letGo();
  }

  /** Whether a part of a further command has come since commands were gathered the last time. */
  get #isArriving(): boolean {
    if (this.#waiting.count === 0 || !this.#parser.isWithinCommand || !this.access.isTrusted) return false;
    return this.served.receivedBytes > this.#gatheredBytes;
  }

  /**
   * Waits while more of a pipeline arrives in every turn of the event loop, so that its commands are executed together,
   * and wait for other nodes once.
   */
  async #gather(): Promise<void> {
    this.#isGathering = true;
    const { served } = this;
    const { clock } = this.#server.env;
    const endBytes = served.receivedBytes + RESP_GATHERED_MAX_BYTES;
    // The first turn is the one in which the latest bytes came.
    await clock.yield();
    for (let bytes = -1; this.#parser.isWithinCommand && bytes < served.receivedBytes; ) {
      bytes = served.receivedBytes;
      if (bytes >= endBytes) break;
      await clock.yield();
    }
    this.#gatheredBytes = served.receivedBytes;
    if (!this.#isGathering) return;
    this.#isGathering = false;
    void this.#run();
  }

  /** Keeps an authenticated client; one that is not, or no longer, may be closed to make room for others. */
  #judge(): void {
    if (this.access.isTrusted) this.served.opened();
    else if (this.served.state === 'open') this.#server.connections.greeting.add(this);
  }

  /** Lets others have their turn when it is time. Answers so far are sent first. */
  #goOn(): Promise<void> | undefined {
    const turn = this.#server.turns.goOn(this.#sharer);
    if (turn !== undefined) this.#output.flush();
    return turn;
  }

  /** Begins a batch. Returns undefined if it has ended already. Its errors are sent as answers. */
  #execute(batch: readonly WaitingCommand[]): Promise<void> | undefined {
    const { command, isAllowed } = batch[0] as WaitingCommand;
    if (typeof command === 'string') {
      this.#session.fail(command);
      this.#server.counts.command(undefined, 'error');
      return undefined;
    }
    const commands = batch.map((each) => each.command as RespCommand);
    // Commands of one batch need the same right.
    const refusal = this.access.isTrusted ? this.access.refusalOf(command.spec) : isAllowed ? undefined : NO_AUTH;
    if (refusal !== undefined) {
      for (const { spec } of commands) {
        this.#session.fail(refusal);
        this.#session.count(spec, 'error');
      }
      return undefined;
    }
    const { spec, args } = command;
    if (spec.batch !== undefined) {
      return spec.batch.run(commands, this.#session).catch((error: unknown) => this.#failed(commands, error));
    }
    try {
      const done = spec.run?.(args, this.#session);
      if (done !== undefined) {
        return done
          .then(() => this.#session.count(spec, 'ok'))
          .catch((error: unknown) => this.#failed(commands, error));
      }
      this.#session.count(spec, 'ok');
    } catch (error) {
      this.#failed(commands, error);
    }
    return undefined;
  }

  /** Answers commands that have failed. If a part of their answers may already have been sent, the connection ends. */
  #failed(commands: readonly RespCommand[], error: unknown): void {
    if (this.isClosed) return;
    const isAnswerable = error instanceof CommandError || commands[0]?.spec.batch?.isStreamed !== true;
    if (!(error instanceof CommandError) && !(error instanceof ClosedError)) {
      this.#server.lines.log('error', 'command of a redis client failed', { error: String(error) });
    }
    if (!isAnswerable) {
      this.close(String(error));
      return;
    }
    for (const { spec } of commands) {
      this.#session.fail(textOfError(error));
      this.#session.count(spec, 'error');
    }
  }

  #makeSession(): RespSession {
    const { facts, counts, env } = this.#server;
    const access = this.access;
    const output = this.#output;
    return {
      id: this.#id,
      name: Buffer.alloc(0),
      protocol: 2,
      access,
      get pages() {
        if (access.pages !== undefined) return access.pages;
        throw new CommandError(
          `NOPERM User ${access.name} has no namespace for Redis commands: its redis_tag is missing`,
        );
      },
      facts,
      signal: this.#abort.signal,
      goOn: () => this.#goOn(),
      timeOf: ({ sentAfterMs }) => {
        const { isOver } = callTime(env.clock, sentAfterMs, sentAfterMs + RESP_DEADLINE_MS);
        const dateMs = facts.dateMs() - (env.clock.nowMs() - sentAfterMs);
        return { askedMs: sentAfterMs, dateMs, isOver: () => this.#hasEnded || isOver() };
      },
      answer(value: Answer) {
        output.add(encodeAnswer(value, this.protocol));
      },
      addBytes: (bytes) => output.add(bytes),
      fail: (text) => output.add(errorAnswer(text)),
      send(reads) {
        return this.pages.send(reads, { output, nil: nilOf(this.protocol), signal: this.signal });
      },
      count: (spec: CommandSpec, result) => counts.command(spec, result),
      countLookup: (asked, found) => counts.lookup(asked, found),
      quit: () => this.finish(),
    };
  }

  #countBytes(): void {
    const { receivedBytes, takenBytes } = this.served;
    this.#server.counts.received(receivedBytes - this.#countedInBytes);
    this.#countedInBytes = receivedBytes;
    this.#server.counts.sent(takenBytes - this.#countedOutBytes);
    this.#countedOutBytes = Math.max(takenBytes, this.#countedOutBytes);
  }

  /** Throws `InvariantError` unless its commands are counted, and a closed one holds nothing. */
  verify(): void {
    this.#waiting.verify();
    assert(
      !this.isClosed || (this.#large.isEmpty && this.#waiting.count === 0),
      () => `redis client ${this.#id}: closed, and holds memory`,
    );
  }
}
