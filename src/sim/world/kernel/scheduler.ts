import { EventHeap, type EventOwner, type EventPlan, type SimEvent } from './event-heap.js';
import type { EventLog } from './event-log.js';

/** Limits of a `Scheduler.run`; the first one reached ends it. Without any, it ends when nothing is left to do. */
export interface RunLimits {
  /** Virtual time; events at exactly this time still run. */
  readonly untilMs?: number | undefined;
  /** Called after every event; the run ends when it returns true. */
  readonly until?: (() => boolean) | undefined;
}

/** The reason for the end of a run; `idle`: no event is left. */
export type RunEnd = 'time' | 'condition' | 'idle' | 'stopped';

/** Called before the next event, when everything that an event has started has run. Runs no code of programs. */
export interface TurnEnd {
  turnEnded(): void;
}

/** A simulated program has thrown, or has left a rejection unhandled; `cause` is the thrown value. */
export class SimulatedFailure extends Error {
  readonly atMs: number;
  /** Id of the event's `EventOwner`; 0: the world. */
  readonly owner: number;

  constructor(message: string, where: { readonly atMs: number; readonly owner: number; readonly cause: unknown }) {
    super(message, { cause: where.cause });
    this.name = 'SimulatedFailure';
    this.atMs = where.atMs;
    this.owner = where.owner;
  }
}

/** Events without progress of virtual time after which the run counts as an endless loop. */
const EVENTS_AT_ONCE_MAX_COUNT = 5_000_000;
/** Most events in one turn of the real event loop, which share the cost of the turn. */
const EVENTS_PER_TURN_COUNT = 1024;

/**
 * Virtual time. Runs one event after the other, each with all promise jobs that follow from it, and never waits. Node
 * runs promise jobs between two immediates, so each event has its own immediate, and many of them share a turn of the
 * event loop.
 */
export class Scheduler {
  readonly #heap = new EventHeap();
  readonly #log: EventLog;
  readonly #failures: FailureWatch;
  /** Listeners for the end of the turn; only the first `#turnEndsCount` are valid. */
  readonly #turnEnds: (TurnEnd | undefined)[] = [];
  #turnEndsCount = 0;
  readonly #slot = (): void => this.#runSlot();
  #nowMs = 0;
  #sequence = 0;
  /** Number of immediates that are queued and have not run. */
  #slots = 0;
  #eventsAtOnce = 0;
  #current: EventOwner | undefined;
  #limits: RunLimits = {};
  #end: { readonly resolve: (end: RunEnd) => void; readonly reject: (error: Error) => void } | undefined;
  #isStopping = false;
  #failure: SimulatedFailure | undefined;

  constructor(log: EventLog) {
    this.#log = log;
    this.#failures = new FailureWatch((error) => this.fail(error));
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  /** Number of future events. */
  get waitingCount(): number {
    return this.#heap.length;
  }

  /** Owner of the event that runs now. */
  get current(): EventOwner | undefined {
    return this.#current;
  }

  /** Time of the next event. */
  get nextMs(): number | undefined {
    return this.#heap.first?.atMs;
  }

  /** Schedules an event. A time in the past means now. */
  schedule(atMs: number, plan: EventPlan): SimEvent {
    const event: SimEvent = {
      plan,
      atMs: atMs > this.#nowMs ? atMs : this.#nowMs,
      sequence: this.#sequence++,
      index: -1,
      isCancelled: false,
    };
    this.#heap.push(event);
    return event;
  }

  /** Puts an event that its owner has held back into the queue again, after other events of that time. */
  reschedule(event: SimEvent, atMs: number): void {
    if (event.isCancelled) return;
    this.#heap.remove(event);
    event.atMs = Math.max(atMs, this.#nowMs);
    event.sequence = this.#sequence++;
    this.#heap.push(event);
  }

  /** Cancels an event; does nothing if it has run. */
  cancel(event: SimEvent): void {
    event.isCancelled = true;
    this.#heap.remove(event);
  }

  /** Calls `what` once, before the next event. */
  atTurnEnd(what: TurnEnd): void {
    this.#turnEnds[this.#turnEndsCount++] = what;
  }

  /** Runs `fn` as a part of an event of `owner`, to whom its exceptions are attributed. */
  runAs(owner: EventOwner, fn: () => void): void {
    const before = this.#current;
    this.#current = owner;
    try {
      fn();
    } finally {
      this.#current = before ?? owner;
    }
  }

  /** Ends the run, which rejects with the first failure. */
  fail(cause: unknown): void {
    const text = cause instanceof Error ? cause.message : String(cause);
    const owner = this.#current?.id ?? 0;
    this.#failure ??= new SimulatedFailure(text, { atMs: this.#nowMs, owner, cause });
  }

  /** Ends the run after the current event. */
  stop(): void {
    this.#isStopping = true;
  }

  /** Runs events; only one run at a time. Rejects with {@link SimulatedFailure}. */
  run(limits: RunLimits): Promise<RunEnd> {
    if (this.#end !== undefined) throw new Error('the world runs already');
    if (limits.untilMs === undefined && limits.until === undefined) this.#limits = {};
    else this.#limits = limits;
    this.#isStopping = false;
    this.#failures.begin();
    return new Promise((resolve, reject) => {
      this.#end = { resolve, reject };
      this.#queueSlots();
    });
  }

  #queueSlots(): void {
    this.#slots += EVENTS_PER_TURN_COUNT;
    for (let i = 0; i < EVENTS_PER_TURN_COUNT; i++) setImmediate(this.#slot);
  }

  #runSlot(): void {
    this.#slots--;
    if (this.#end === undefined) return;
    this.#step();
    if (this.#slots === 0 && this.#end !== undefined) this.#queueSlots();
  }

  #step(): void {
    this.#endTurn();
    if (this.#failure !== undefined) this.#fails(this.#failure);
    else if (this.#isStopping) this.#ends('stopped');
    else if (this.#limits.until?.() === true) this.#ends('condition');
    else this.#runNext();
  }

  #endTurn(): void {
    for (let i = 0; i < this.#turnEndsCount; i++) {
      this.#turnEnds[i]?.turnEnded();
      this.#turnEnds[i] = undefined;
    }
    this.#turnEndsCount = 0;
  }

  #runNext(): void {
    const { untilMs = Number.POSITIVE_INFINITY } = this.#limits;
    for (;;) {
      const event = this.#heap.first;
      if (event === undefined || event.atMs > untilMs) {
        if (untilMs < Number.POSITIVE_INFINITY) this.#nowMs = Math.max(this.#nowMs, untilMs);
        this.#ends(event === undefined ? 'idle' : 'time');
        return;
      }
      this.#heap.remove(event);
      if (event.atMs > this.#nowMs) {
        this.#nowMs = event.atMs;
        this.#eventsAtOnce = 0;
      }
      const { plan } = event;
      if (plan.owner !== undefined && !plan.owner.mayRun(event)) continue;
      this.#runEvent(plan);
      return;
    }
  }

  #runEvent(plan: EventPlan): void {
    if (++this.#eventsAtOnce > EVENTS_AT_ONCE_MAX_COUNT) this.fail(new Error('time stands still: an endless loop'));
    this.#current = plan.owner;
    this.#log.event(this.#nowMs, plan.kind, plan.owner?.id ?? 0, plan.detail ?? 0);
    try {
      plan.run();
    } catch (error) {
      this.fail(error);
    }
  }

  #ends(end: RunEnd): void {
    const waiting = this.#end;
    this.#end = undefined;
    this.#current = undefined;
    this.#failures.end();
    waiting?.resolve(end);
  }

  #fails(error: SimulatedFailure): void {
    const waiting = this.#end;
    this.#end = undefined;
    this.#current = undefined;
    this.#failures.end();
    waiting?.reject(error);
  }
}

type Listener = (error: Error) => void;

const EVENTS = ['unhandledRejection', 'uncaughtException'] as const;
const WATCHES: unique symbol = Symbol('watches a simulated world');

/**
 * Catches unhandled rejections, and exceptions in promise jobs, while a world runs. They belong to the simulated
 * programs, so other listeners in this process do not receive them meanwhile.
 */
class FailureWatch {
  readonly #heard: Listener;
  #others: (readonly [string, Listener[]])[] = [];

  constructor(onFailure: (error: unknown) => void) {
    this.#heard = Object.assign((error: unknown) => onFailure(error), { [WATCHES]: true });
  }

  /** Begins watching. Throws while another world runs in this process. */
  begin(): void {
    const others = EVENTS.map(
      (event) => [event, process.rawListeners(event as 'uncaughtException') as Listener[]] as const,
    );
    if (others.some(([, listeners]) => listeners.some((listener) => WATCHES in listener))) {
      throw new Error('another world runs in this process: one at a time');
    }
    this.#others = others;
    for (const event of EVENTS) {
      process.removeAllListeners(event);
      process.on(event as 'uncaughtException', this.#heard);
    }
  }

  end(): void {
    for (const [event, listeners] of this.#others) {
      process.removeListener(event, this.#heard);
      for (const listener of listeners) process.on(event as 'uncaughtException', listener);
    }
    this.#others = [];
  }
}
