import type { PlacementRouting } from '../../core/index.js';

/** Calls by chance, of all kinds, from every node. */
export interface MixedWorkload {
  readonly kind: 'mixed';
  /** Loops of calls on every node. */
  readonly callers: number;
  /** Longest pause between two calls of a loop. */
  readonly pauseMaxMs: number;
  /** Named entries that only one node sets, of each node; and those that every node overwrites. */
  readonly ownKeys: number;
  readonly namedKeys: number;
  /** Computed pages that every node sets; and keys that are set in both ways. */
  readonly computedKeys: number;
  readonly mixedKeys: number;
  readonly batchMaxPages: number;
  /** One call of so many is a delete, a clear; 0: none. */
  readonly deleteOneIn: number;
  readonly clearOneIn: number;
  /** Share of the calls that set. */
  readonly setShare: number;
  /** Share of the reads that go to the first few keys. */
  readonly hotShare: number;
  /** Tags of further namespaces, which must not meet. */
  readonly namespaces: readonly string[];
}

/** Conversations of growing prompts, each turn with the pages of all earlier ones. */
export interface ConversationWorkload {
  readonly kind: 'conversations';
  readonly routing: PlacementRouting;
  /** New conversations a second, at random times. */
  readonly startsPerS: number;
  /** Turns of a conversation, on average. */
  readonly turns: number;
  /** Pages that a turn adds, on average. */
  readonly pagesPerTurn: number;
  /** Pages of a system prompt that all share. */
  readonly sharedPages: number;
  /** Between an answer and the next turn, on average. */
  readonly thinkMs: number;
  /** What computing a page takes that was not found. */
  readonly computeMsPerPage: number;
}

/** One request of a trace. */
export interface TraceRequest {
  readonly timestampMs: number;
  /** One id a page; equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
  readonly session?: string | number;
}

/** Requests at the times of a trace. */
export interface TraceWorkload {
  readonly kind: 'trace';
  readonly requests: readonly TraceRequest[];
  readonly routing: PlacementRouting;
  /** So many times as fast. */
  readonly speed: number;
  readonly computeMsPerPage: number;
}

/** Nothing but the nodes: joining, leaving, being there. */
export interface NoWorkload {
  readonly kind: 'none';
}

/** What the nodes of a scenario do. */
export type Workload = MixedWorkload | ConversationWorkload | TraceWorkload | NoWorkload;

/** Mixed calls where nothing else is said. */
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
  setShare: 0.3,
  hotShare: 0.2,
  namespaces: [],
};

/** Conversations where nothing else is said. */
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

/** What follows from a trace's requests but for their times. */
export const TRACE: Omit<TraceWorkload, 'requests'> = {
  kind: 'trace',
  routing: 'prefix',
  speed: 1,
  computeMsPerPage: 0,
};
