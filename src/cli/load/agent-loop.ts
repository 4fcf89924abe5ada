import { seededRandom, shuffled } from '../../base/environment/random.js';
import type { AgentSession, AgentThread, AgentTurn } from './agent-sessions.js';

/** Users begin their first sessions within this time, so that they do not keep step. */
const FIRST_BEGINS_MS = 60_000;

export interface AgentLoopOptions {
  /** Users, each of whom has one session at a time. */
  readonly users: number;
  /** Sessions to play; undefined: all. */
  readonly sessions?: number;
  /** Longest pause of a session, in which nothing of it runs, in seconds; longer ones are cut to it. */
  readonly maxGapS: number;
  readonly seed: number;
}

/** A request of a played session. */
export interface AgentRequest {
  /** Milliseconds since the start. */
  readonly atMs: number;
  readonly user: number;
  /** Index of the recorded session. */
  readonly session: number;
  readonly thread: AgentThread;
  readonly turn: AgentTurn;
  /**
   * Milliseconds until the next request of this agent or subagent, as recorded; Infinity: this is its last one.
   */
  readonly nextInMs: number;
  /** Milliseconds until the answer, as recorded. */
  readonly answerMs: number;
  readonly cause: AgentCause;
}

/** What a request waits for before it begins. */
export interface AgentCause {
  /** Number of an earlier request, in the order in which they were made, from 0; undefined: the start of everything. */
  readonly after: number | undefined;
  /** Whether it is the answer to that request, and not its begin. */
  readonly isAnswered: boolean;
  /** Milliseconds from then on. */
  readonly waitMs: number;
}

/** When a recorded request begins in a played session. Times are in milliseconds. */
interface PlannedTurn {
  readonly turn: AgentTurn;
  readonly thread: AgentThread;
  /**
   * Time from the answer to the thread's last request; for the first one of a subagent, from the begin of the request
   * that starts it, and without such a request from the session's start.
   */
  readonly waitMs: number;
  readonly answerMs: number;
  /** The next request of the thread; undefined after the last one. */
  next: PlannedTurn | undefined;
  /** First requests of the subagents that this request starts. */
  readonly starts: PlannedTurn[];
}

/** A session that a user plays now. */
interface Play {
  readonly user: number;
  readonly session: number;
  /** Requests that have not been answered. */
  left: number;
  /** Time of the latest answer so far, and the number of its request. */
  endMs: number;
  last: number | undefined;
}

/** A request that begins at a known time. */
interface Waiting {
  readonly atMs: number;
  readonly play: Play;
  readonly planned: PlannedTurn;
  readonly cause: AgentCause;
}

/**
 * Plays recorded sessions in a closed loop. A number of users play one session after the other, in an order that the
 * seed draws, each session once. A request begins when the answer to the one before it, and the recorded think time,
 * are over; subagents begin as long after the request that starts them as in the recording.
 *
 *     for (let request = loop.next(); request !== undefined; request = loop.next()) loop.answered(delayMs);
 *
 * The order depends on nothing but the recording, the options and the delays.
 */
export class AgentLoop {
  readonly #sessions: readonly AgentSession[];
  readonly #maxGapS: number;
  /** Indices of the sessions that nobody has begun. */
  readonly #order: number[];
  /** Requests of all users that begin at a known time. */
  readonly #waiting: Waiting[] = [];
  #current: Waiting | undefined;
  /** Number of requests that have begun. */
  #begun = 0;

  constructor(sessions: readonly AgentSession[], { users, sessions: count, maxGapS, seed }: AgentLoopOptions) {
    const random = seededRandom(seed);
    this.#sessions = sessions;
    this.#maxGapS = maxGapS;
    this.#order = shuffled([...sessions.keys()], random).slice(0, count);
    for (let user = 0; user < users; user++) this.#begin(user, random.u32() % FIRST_BEGINS_MS, undefined);
  }

  /** Begins the next request of all users; undefined when every request has been made. */
  next(): AgentRequest | undefined {
    this.answered();
    let first = 0;
    this.#waiting.forEach(({ atMs }, i) => {
      if (atMs < (this.#waiting[first] as Waiting).atMs) first = i;
    });
    // The order of the others stays, so that of several requests at one time the one that was known first begins first.
    const [current] = this.#waiting.splice(first, 1);
    if (current === undefined) return undefined;
    this.#current = current;
    this.#begun++;
    const { atMs, play, planned, cause } = current;
    const { turn, thread, next, answerMs } = planned;
    const nextInMs = next === undefined ? Number.POSITIVE_INFINITY : answerMs + next.waitMs;
    return { atMs, user: play.user, session: play.session, thread, turn, nextInMs, answerMs, cause };
  }

  /**
   * Notes that the answer to the request that has just begun comes `delayMs` later than in the recording, and with it
   * everything that follows from it. Without a call there is no delay.
   */
  answered(delayMs = 0): void {
    const current = this.#current;
    if (current === undefined) return;
    this.#current = undefined;
    const { atMs, play, planned } = current;
    const endMs = atMs + planned.answerMs + delayMs;
    const after = this.#begun - 1;
    const wait = (fromMs: number, isAnswered: boolean, waits: PlannedTurn): void => {
      const cause = { after, isAnswered, waitMs: waits.waitMs };
      this.#waiting.push({ atMs: fromMs + waits.waitMs, play, planned: waits, cause });
    };
    for (const start of planned.starts) wait(atMs, false, start);
    if (planned.next !== undefined) wait(endMs, true, planned.next);
    if (endMs >= play.endMs) [play.endMs, play.last] = [endMs, after];
    play.left--;
    if (play.left === 0) this.#begin(play.user, play.endMs, play.last);
  }

  /** Lets a user begin the next session, if there is one. `after`: number of the user's last answered request. */
  #begin(user: number, atMs: number, after: number | undefined): void {
    const session = this.#order.shift();
    if (session === undefined) return;
    const recorded = this.#sessions[session] as AgentSession;
    const left = recorded.threads.reduce((sum, { turns }) => sum + turns.length, 0);
    const play: Play = { user, session, left, endMs: atMs, last: undefined };
    for (const planned of plannedSession(recorded, this.#maxGapS)) {
      const waitMs = planned.waitMs + (after === undefined ? atMs : 0);
      const cause = { after, isAnswered: true, waitMs };
      this.#waiting.push({ atMs: atMs + planned.waitMs, play, planned, cause });
    }
  }
}

/** Plans a session. Returns the requests that nothing but its start comes before: the first one of the agent. */
function plannedSession({ threads }: AgentSession, maxGapS: number): PlannedTurn[] {
  const cutsS = cutsBefore(threads, maxGapS);
  let startS = Number.POSITIVE_INFINITY;
  for (const { turns } of threads) startS = Math.min(startS, turns[0]?.atS ?? startS);
  const cutOf = (turn: AgentTurn | undefined) => (turn === undefined ? 0 : (cutsS.get(turn) as number));
  const plannedOf = new Map<AgentTurn, PlannedTurn>();
  const firsts: PlannedTurn[] = [];
  for (const thread of threads) {
    const { turns, parent } = thread;
    for (const [i, turn] of turns.entries()) {
      const before = i === 0 ? startingTurn(turn, threads[parent ?? -1]) : turns[i - 1];
      const gapS = i === 0 ? turn.atS - (before?.atS ?? startS) : pauseS(before as AgentTurn, turn);
      const waitMs = Math.round(1000 * Math.max(0, gapS - (cutOf(turn) - cutOf(before))));
      const answerMs = Math.round(1000 * (turn.answerS ?? 0));
      const planned: PlannedTurn = { turn, thread, waitMs, answerMs, next: undefined, starts: [] };
      plannedOf.set(turn, planned);
      const last = before === undefined ? undefined : plannedOf.get(before);
      if (last === undefined) firsts.push(planned);
      else if (i === 0) last.starts.push(planned);
      else last.next = planned;
    }
  }
  return firsts;
}

/** The request of the parent during or after which a subagent was started, by its first request. */
function startingTurn(first: AgentTurn, parent: AgentThread | undefined): AgentTurn | undefined {
  return parent?.turns.findLast(({ atS }) => atS <= first.atS);
}

/**
 * Seconds between the answer to a request and the next one of the thread: the recorded think time. If that or the time
 * of the answer was not recorded, it follows from the times of the requests.
 */
function pauseS(before: AgentTurn, turn: AgentTurn): number {
  if (turn.thinkS !== undefined && before.answerS !== undefined) return turn.thinkS;
  return Math.max(0, turn.atS - before.atS - (before.answerS ?? 0));
}

/** Seconds that are cut from the session's pauses up to each request. */
function cutsBefore(threads: readonly AgentThread[], maxGapS: number): Map<AgentTurn, number> {
  const cutsS = new Map<AgentTurn, number>();
  const all = threads.flatMap(({ turns }) => turns.map((turn, i) => ({ turn, before: turns[i - 1] })));
  all.sort((a, b) => a.turn.atS - b.turn.atS);
  let cutS = 0;
  let latest: AgentTurn | undefined;
  for (const { turn, before } of all) {
    if (latest !== undefined) {
      const idleS = latest === before ? pauseS(latest, turn) : turn.atS - endS(latest);
      cutS += Math.max(0, idleS - maxGapS);
    }
    cutsS.set(turn, cutS);
    if (latest === undefined || endS(turn) >= endS(latest)) latest = turn;
  }
  return cutsS;
}

function endS({ atS, answerS }: AgentTurn): number {
  return atS + (answerS ?? 0);
}
