import { assert } from '../base/assert.js';
import type { ByteBudget } from '../base/concurrency/byte-budget.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Clock } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import type { Connection } from '../base/environment/network.js';
import type { SparseLog } from '../base/environment/sparse-log.js';
import { ClosedError, ProtocolError } from '../base/errors.js';
import { RECEIVING_MIN_BYTES_PER_S, RESP_DEADLINE_MS, RESP_SENT_MAX_MS } from '../base/limits.js';
import { Arrivals, LeastRate } from '../net/arrivals.js';
import { callTime } from '../store/call/call-time.js';
import type { RespAccess } from './access/resp-access.js';
import type { ArgumentMemory } from './argument-memory.js';
import {
  CommandError,
  type CommandSpec,
  isChange,
  type RespCommand,
  type RespFacts,
  type RespSession,
  textOfError,
} from './commands/command.js';
import { commandOf } from './commands/command-table.js';
import { NO_AUTH } from './commands/connection-commands.js';
import { LargeArguments } from './large-arguments.js';
import type { RespCounts } from './resp-counts.js';
import type { RespLimits } from './resp-limits.js';
import { RespOutput } from './values/resp-output.js';
import { type WaitingCommand, WaitingCommands, type WaitingTotal } from './waiting-commands.js';
import { type Answer, encodeAnswer, errorAnswer, nilOf } from './wire/resp-answers.js';
import { type RespArgument, RespParser } from './wire/resp-parser.js';

export interface RespConnectionParts {
  readonly socket: Connection;
  readonly id: number;
  readonly limits: RespLimits;
  /** Memory for large arguments that are being received, shared by all connections. */
  readonly budget: ByteBudget;
  /** Where the connection is from. */
  readonly origin: Sharer;
  readonly memory: ArgumentMemory;
  readonly waiting: WaitingTotal;
  /** Memory for values that are copied. */
  readonly valuesBudget: ByteBudget;
  readonly facts: RespFacts;
  readonly counts: RespCounts;
  /** The user of the connection, and what it may do. */
  readonly access: RespAccess;
  /** Divides the time of the main loop between clients. */
  readonly turns: WorkTurns;
  readonly clock: Clock;
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  readonly log: Logger;
  /** For what clients cause. */
  readonly lines: SparseLog;
  /** Called once, when the connection has ended and nothing of it is in progress. */
  readonly onEnded: (connection: RespConnection) => void;
}

/**
 * The answer to a command that would change something and is not carried out, because its client may have given it up.
 */
const SENT_EARLIER = 'TRYAGAIN the node was not running; this may have been sent long ago, and was not carried out';

/** One Redis client: receives its commands, carries them out one after the other, and answers in their order. */
export class RespConnection {
  readonly #parts: RespConnectionParts;
  readonly #arrivals: Arrivals;
  readonly #parser: RespParser;
  readonly #output: RespOutput;
  readonly #waiting: WaitingCommands;
  readonly #session: RespSession;
  readonly #large: LargeArguments;
  readonly #abort = new AbortController();
  readonly #cancelLogin: () => void;
  #state: 'open' | 'finishing' | 'closed' = 'open';
  #isRunning = false;
  #isEnded = false;
  /** Whether the client has ended its side. */
  #hasEnded = false;
  #sentBytes = 0;
  readonly #rate: LeastRate;
  #cancelCommandTimer: (() => void) | undefined;

  constructor(parts: RespConnectionParts) {
    this.#parts = parts;
    const { socket, clock, limits, valuesBudget: budget } = parts;
    const { stallTimeoutMs, receivingWindowMs } = limits;
    this.#rate = new LeastRate({ clock, windowMs: receivingWindowMs, onSlow: () => this.#tooSlow() });
    const onStalled = (reason: string): void => this.close(reason);
    const sharer = this.#sharer;
    this.#output = new RespOutput({ socket, clock, budget, sharer, stallTimeoutMs, onStalled });
    this.#waiting = new WaitingCommands(parts.waiting);
    this.#session = this.#makeSession();
    const onRoom = () => this.#guarded(() => this.#parser.resume());
    this.#large = new LargeArguments({ ...parts, sharer, onRoom });
    this.#parser = new RespParser({
      onCommand: (args) => this.#onCommand(args),
      beginLarge: (bytes) => this.#beginLarge(bytes),
      reserve: (bytes) => this.#large.reserve(bytes),
      reserveWords: (bytes) => this.#large.reserveWords(bytes),
      grow: (body, bytes) => this.#large.grow(body, bytes),
      isTrusted: () => this.access.isTrusted,
    });
    this.#arrivals = new Arrivals({
      ...parts,
      sharer,
      receive: (bytes) => this.#guarded(() => this.#parser.receive(bytes)),
      onWaiting: () => this.#updateReading(),
    });
    this.#cancelLogin = clock.after(limits.loginTimeoutMs, () => this.#checkLogin());
    socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    socket.on('error', (error) => this.close(error.message));
    socket.on('end', () => this.#onEnd());
    socket.on('close', () => this.close('closed'));
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Where the connection is from. */
  get origin(): Sharer {
    return this.#parts.origin;
  }

  /** Memory is taken of its own share, among those from the same place. */
  get #sharer(): Sharer {
    return { one: `connection ${this.#parts.id}`, group: this.#parts.origin.one };
  }

  /** The client's user, and what it may do. */
  get access(): RespAccess {
    return this.#parts.access;
  }

  /** Ends the connection of a user who is there no more. */
  usersChanged(): void {
    if (this.#parts.access.isGone) this.close('its user is there no more');
  }

  /** Accepts no more commands, ends those in progress, then ends the connection. Idempotent. */
  finish(): void {
    this.#waiting.clear();
    this.#finish();
  }

  /** Ends the connection and what is in progress. Idempotent. */
  close(reason: string): void {
    if (this.isClosed) return;
    this.#state = 'closed';
    const { socket, log, id } = this.#parts;
    log.log('debug', 'redis client disconnected', { client: id, reason });
    this.#stopReceiving();
    this.#cancelLogin();
    this.#countSent();
    this.#waiting.clear();
    this.#abort.abort();
    // The system reads nothing of this process's memory any more when this returns.
    socket.destroy();
    this.#output.close();
    this.#endWhenIdle();
  }

  /** The client sends nothing more. It may have given up what waits, so that only reads of that are carried out. */
  #onEnd(): void {
    this.#hasEnded = true;
    this.#waiting.refuseChanges();
    this.#finish();
  }

  /** Carries out what was received, then ends the connection. */
  #finish(): void {
    if (this.#state !== 'open') return;
    this.#state = 'finishing';
    this.#stopReceiving();
    void this.#run();
  }

  #checkLogin(): void {
    if (!this.access.isTrusted) this.close('not authenticated in time');
  }

  #stopReceiving(): void {
    this.#arrivals.stop();
    this.#parser.stop();
    this.#takeLarge()();
  }

  /** Ends the reception of a command. Returns what gives back the memory of its large arguments. */
  #takeLarge(): () => void {
    this.#cancelCommandTimer?.();
    this.#cancelCommandTimer = undefined;
    this.#rate.end();
    return this.#large.take();
  }

  #onData(chunk: Buffer): void {
    if (this.#state !== 'open') return;
    this.#parts.counts.received(chunk.length);
    this.#rate.received(chunk.length);
    this.#arrivals.add(chunk);
  }

  /** Runs `receive`; if the client does not keep to the protocol, it is told and disconnected. */
  #guarded(receive: () => void): void {
    try {
      receive();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const { lines, id, origin } = this.#parts;
      const reason = error.message;
      lines.log('warn', 'redis client disconnected', { client: id, from: origin.one, reason }, 'protocol');
      this.#refuse(reason);
      return;
    }
    if (this.#parser.isWithinCommand && this.#cancelCommandTimer === undefined && this.#large.count === 0)
      this.#limit();
    this.#updateReading();
    void this.#run();
  }

  /** Limits the time in which the command that is being received must be complete, if it has no large arguments. */
  #limit(): void {
    const { clock, limits, socket } = this.#parts;
    this.#cancelCommandTimer?.();
    this.#cancelCommandTimer = clock.after(limits.stallTimeoutMs, () => {
      // A client that is not read cannot complete its command.
      if (socket.isPaused()) this.#limit();
      else this.close('a command has not ended in time');
    });
  }

  /** Ends a connection on which a large argument does not go on: it would hold memory that others need. */
  #tooSlow(): void {
    const { lines, limits, id, origin } = this.#parts;
    const perS = RECEIVING_MIN_BYTES_PER_S;
    const reason = `a command of which less than ${perS} bytes a second have come for ${limits.receivingWindowMs / 1000} s`;
    lines.log('warn', 'redis client disconnected', { client: id, from: origin.one, reason }, 'slow');
    this.#refuse(reason);
  }

  /** Answers an error behind what waits, and ends the connection. */
  #refuse(reason: string): void {
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
    // Whether later commands are allowed is known only when this one has been carried out, so nothing more is read of a
    // stranger.
    if (!this.access.isTrusted) void this.#run();
  }

  /** The command, or the error to answer instead. */
  #commandOf(spec: CommandSpec, args: RespArgument[]): RespCommand | string {
    const { sentAfterMs } = this.#arrivals;
    const isLate = this.#parts.clock.nowMs() - sentAfterMs > RESP_SENT_MAX_MS;
    return isLate && isChange(spec) ? SENT_EARLIER : { spec, args, sentAfterMs };
  }

  /** Begins a large argument; false: it is dropped, as no pool takes it. */
  #beginLarge(bytes: number): boolean {
    if (bytes > this.#parts.facts.poolCapacityBytes()) return false;
    this.#cancelCommandTimer?.();
    this.#cancelCommandTimer = undefined;
    this.#large.begin();
    this.#rate.begin();
    return true;
  }

  /** Stops reading while there is no memory for an argument, others have their turn, or enough commands wait. */
  #updateReading(): void {
    if (this.#state !== 'open') return;
    const { socket, limits, waiting } = this.#parts;
    const { count, bytes } = this.#waiting;
    const isTooMuch = count >= limits.waitingMaxCount || bytes >= limits.waitingMaxBytes;
    const isHeld = this.#large.isWaiting || this.#arrivals.isWaiting || isTooMuch;
    const isToWait = isHeld || (count > 0 && waiting.bytes > limits.allWaitingMaxBytes);
    this.#rate.hold(isToWait);
    if (isToWait) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  /** Carries out what waits, one batch after the other. */
  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // The first commands are carried out at once: what a client may send next depends on them while it is not
    // authenticated.
    while (!this.isClosed && (!this.#output.isFull || (await this.#output.room()))) {
      const batch = this.#waiting.takeBatch();
      if (batch.length === 0) break;
      const done = this.#execute(batch);
      if (done !== undefined) {
        this.#output.flush();
        await done;
      }
      for (const { giveBack } of batch) giveBack();
      this.#updateReading();
      const turn = this.#goOn();
      if (turn !== undefined) await turn;
    }
    this.#isRunning = false;
    if (!this.isClosed) {
      this.#output.flush();
      this.#countSent();
      if (this.#state === 'finishing') this.#endSocket();
    }
    this.#endWhenIdle();
  }

  /** Lets others have their turn, if it is time; what has been answered is sent before. */
  #goOn(): Promise<void> | undefined {
    const turn = this.#parts.turns.goOn(this.#sharer);
    if (turn !== undefined) this.#output.flush();
    return turn;
  }

  #endSocket(): void {
    const { socket, clock, limits } = this.#parts;
    if (socket.writableEnded) return;
    const cancel = clock.after(limits.stallTimeoutMs, () => this.close('the client does not take its answers'));
    socket.end(() => {
      cancel();
      this.close('finished');
    });
  }

  /** Begins a batch; returns nothing if it has ended already. Its errors are answered. */
  #execute(batch: readonly WaitingCommand[]): Promise<void> | undefined {
    const { command, isAllowed } = batch[0] as WaitingCommand;
    if (typeof command === 'string') {
      this.#session.fail(command);
      this.#parts.counts.command(undefined, 'error');
      return undefined;
    }
    const commands = batch.map((each) => each.command as RespCommand);
    // Commands of one batch need the same right.
    const refusal = this.access.isTrusted
      ? this.#parts.access.refusalOf(command.spec)
      : isAllowed
        ? undefined
        : NO_AUTH;
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

  /** Answers commands that have failed. Where a part of their answers may have been sent, the connection ends. */
  #failed(commands: readonly RespCommand[], error: unknown): void {
    if (this.isClosed) return;
    const isAnswerable = error instanceof CommandError || commands[0]?.spec.batch?.isStreamed !== true;
    if (!(error instanceof CommandError) && !(error instanceof ClosedError)) {
      this.#parts.lines.log('error', 'command of a redis client failed', { error: String(error) });
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
    const { id, access, facts, counts, clock } = this.#parts;
    const output = this.#output;
    return {
      id,
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
        const { isOver } = callTime(clock, sentAfterMs, sentAfterMs + RESP_DEADLINE_MS);
        const dateMs = facts.dateMs() - (clock.nowMs() - sentAfterMs);
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

  #countSent(): void {
    const { socket, counts } = this.#parts;
    const sent = socket.bytesWritten - socket.writableLength;
    counts.sent(sent - this.#sentBytes);
    this.#sentBytes = Math.max(sent, this.#sentBytes);
  }

  #endWhenIdle(): void {
    if (this.#isEnded || this.#isRunning || !this.isClosed) return;
    this.#isEnded = true;
    this.#parts.onEnded(this);
  }

  /** Throws `InvariantError` unless its commands are counted, and a closed one holds nothing. */
  verify(): void {
    this.#waiting.verify();
    assert(
      !this.isClosed || (this.#large.isEmpty && this.#waiting.count === 0),
      () => `redis client ${this.#parts.id}: closed, and holds memory`,
    );
  }
}
