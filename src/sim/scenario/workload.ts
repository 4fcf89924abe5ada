import type { PlacementRouting } from '../../core/index.js';

/** Random calls of all kinds, from every node. */
export interface MixedWorkload {
  readonly kind: 'mixed';
  /** Number of concurrent loops of calls on every node. */
  readonly callers: number;
  /** Longest pause between two calls of a loop, in milliseconds. */
  readonly pauseMaxMs: number;
  /** Number of named entries of each node that only this node sets. */
  readonly ownKeys: number;
  /** Number of named entries that every node overwrites. */
  readonly namedKeys: number;
  /** Number of computed pages that every node sets. */
  readonly computedKeys: number;
  /** Number of keys that are set in both ways. */
  readonly mixedKeys: number;
  readonly batchMaxPages: number;
  /** One of this many calls is a delete; 0: none. */
  readonly deleteOneIn: number;
  /** One of this many calls is a clear; 0: none. */
  readonly clearOneIn: number;
  /** Mean milliseconds between two calls that pin or unpin pages, on every node; 0: none. */
  readonly pinEveryMs: number;
  /** Share of the calls that set pages. */
  readonly setShare: number;
  /** Share of all chosen keys that are among the first few of their kind. */
  readonly hotShare: number;
  /** Tags of additional namespaces, whose pages must stay separate. */
  readonly namespaces: readonly string[];
}

/** Conversations of growing prompts, each turn with the pages of all earlier ones. */
export interface ConversationWorkload {
  readonly kind: 'conversations';
  readonly routing: PlacementRouting;
  /** New conversations per second, at random times. */
  readonly startsPerS: number;
  /** Mean number of turns of a conversation. */
  readonly turns: number;
  /** Mean number of pages that a turn adds. */
  readonly pagesPerTurn: number;
  /** Pages of a system prompt that all conversations share. */
  readonly sharedPages: number;
  /** Mean milliseconds between an answer and the next turn. */
  readonly thinkMs: number;
  /** Milliseconds that computing a missing page takes. */
  readonly computeMsPerPage: number;
}

/** One request of a trace. */
export interface TraceRequest {
  readonly timestampMs: number;
  /** One id for each page; equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
  readonly session?: string | number;
}

/** Requests at the times of a trace. */
export interface TraceWorkload {
  readonly kind: 'trace';
  readonly requests: readonly TraceRequest[];
  readonly routing: PlacementRouting;
  /** Factor by which the trace is sped up. */
  readonly speed: number;
  readonly computeMsPerPage: number;
}

/** One request of a session. */
export interface SessionRequest {
  /** One id for each page; equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
  readonly session: number;
  /** Number of the agent or subagent that makes it: its requests follow each other. */
  readonly thread: number;
  /** Index of an earlier request for which this one waits; default: none, it waits from the start. */
  readonly after?: number;
  /** Whether it waits for the answer to that request; false: for its begin. */
  readonly isAnswered: boolean;
  /** Milliseconds from then on until this request begins. */
  readonly waitMs: number;
  /** Milliseconds from the end of the lookup until the answer is complete. */
  readonly answerMs: number;
  /** Milliseconds from the answer to the thread's next request; default: there is none. */
  readonly nextInMs?: number;
}

/**
 * What a program says when a request is answered. `waiting`: when the thread's next request comes, or that it has
 * ended; `prefetch`: the same, and it has the pages of the request brought back by then.
 */
export type Told = 'nothing' | 'waiting' | 'prefetch';

/** Sessions in a closed loop: a request begins after the answer to the one before it. */
export interface SessionsWorkload {
  readonly kind: 'sessions';
  readonly requests: readonly SessionRequest[];
  readonly routing: PlacementRouting;
  readonly told: Told;
  /** Share of the told times that are those of some other request. */
  readonly toldWrong: number;
  /** Largest error of the others, as a share of the time: .3 tells from 70 to 130 %. */
  readonly toldError: number;
}

/** No workload: nodes only join, stay and leave. */
export interface NoWorkload {
  readonly kind: 'none';
}

/** The work of the nodes in a scenario. */
export type Workload = MixedWorkload | ConversationWorkload | TraceWorkload | SessionsWorkload | NoWorkload;

/** Mixed calls with all defaults. */
export const MIXED: MixedWorkload = {
  kind: 'mixed',
  callers: 2,
  pauseMaxMs: 500,
  ownKeys: 40,
  namedKeys: 20,
  computedKeys: 20,
  mixedKeys: 6,
  batchMaxPages: 12,
  deleteOneIn: 60,
  clearOneIn: 600,
  pinEveryMs: 0,
  setShare: 0.3,
  hotShare: 0.2,
  namespaces: [],
};

/** Conversations with all defaults. */
export const CONVERSATIONS: ConversationWorkload = {
  kind: 'conversations',
  routing: 'session',
  startsPerS: 2,
  turns: 6,
  pagesPerTurn: 8,
  sharedPages: 4,
  thinkMs: 3_000,
  computeMsPerPage: 2,
};

/** Defaults of a trace's workload, without its requests. */
export const TRACE: Omit<TraceWorkload, 'requests'> = {
  kind: 'trace',
  routing: 'prefix',
  speed: 1,
  computeMsPerPage: 0,
};

/** Defaults of a workload of sessions, without its requests. */
export const SESSIONS: Omit<SessionsWorkload, 'requests'> = {
  kind: 'sessions',
  routing: 'session',
  told: 'nothing',
  toldWrong: 0,
  toldError: 0,
};

/** All values of {@link Told}. */
export const TOLD: readonly Told[] = ['nothing', 'waiting', 'prefetch'];
