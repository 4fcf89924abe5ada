/** What the suite and its node processes say to each other by the IPC channel. */

/** Calls of the store that are watched. */
export const CALLS = ['set', 'get', 'exists', 'clear', 'delete'] as const;
export type CallKind = (typeof CALLS)[number];

export interface NodeSetup {
  readonly node: number;
  readonly nodes: number;
  readonly seed: number;
  /** Of the run: logs of what was set. */
  readonly folder: string;
  readonly extraConfig: Readonly<Record<string, unknown>>;
  /** How far the node's wall clock is off. */
  readonly clockOffsetMs: number;
  /** Planted faults, which the suite must find. */
  readonly canaries: readonly Canary[];
}

/**
 * `wrong`: a byte of a page that was read is changed · `foreign`: the whole right page of another key is given · `old`:
 * a page is given that says to be a version that was never set · `hang`: calls end far too late · `throw`: a call
 * rejects · `crash`: the process ends by itself · `lost`: the directory is never told of some pages · `leak`: a timer
 * is left behind · `unstamped`: a page that is freed keeps its stamp · `undropped`: a node keeps pages that it is told
 * to drop · `unordered`: directory shards do not compare versions · `undelivered`: directory shards are not told of
 * some pages, so that what is freed is looked for where it was: stamps are there for that · `unfreed`: a directory
 * shard does not get back the places of locations that go.
 */
export const CANARIES = [
  'wrong',
  'foreign',
  'old',
  'hang',
  'throw',
  'crash',
  'lost',
  'leak',
  'unstamped',
  'undropped',
  'unordered',
  'undelivered',
  'unfreed',
] as const;
export type Canary = (typeof CANARIES)[number];

/** Something that must never be. */
export interface Violation {
  readonly kind:
    | 'wrong'
    /** What was read is older than it may be; what was read was freed by the only node that had it. */
    | 'order'
    | 'freed'
    | 'hang'
    | 'threw'
    | 'crash'
    | 'lost'
    | 'start'
    | 'close'
    | 'stall'
    | 'membership'
    | 'idle'
    | 'growth'
    /** What a node keeps does not agree with itself. */
    | 'invariant';
  readonly node: number;
  readonly detail: string;
}

/** A page that a node has, by its own account. */
export interface Survivor {
  readonly key: string;
  readonly tier: 'memory' | 'disk';
}

export interface Progress {
  readonly calls: Readonly<Record<CallKind, number>>;
  /** The longest of each kind, while the process ran. */
  readonly longestMs: Readonly<Record<CallKind, number>>;
  readonly pagesSet: number;
  readonly setFailures: number;
  readonly hits: number;
  readonly misses: number;
  readonly remoteHits: number;
  readonly diskHits: number;
  readonly checksumFailures: number;
  /** For so long the node has waited for a processor. */
  readonly starvedMs: number;
}

/** What a node takes of the system. */
export interface Sample {
  readonly rssBytes: number;
  readonly heapBytes: number;
  readonly descriptors: number;
  /** Set and not yet due or cancelled. */
  readonly timers: number;
  /** Of the node, in all states. */
  readonly connections: number;
  readonly directoryKeys: number;
}

export type Ask =
  | { readonly what: 'work' }
  /** Begins no new calls; resolves when those under way have ended. */
  | { readonly what: 'rest' }
  | { readonly what: 'progress' }
  | { readonly what: 'members' }
  | { readonly what: 'survivors' }
  /** Reads all these pages once; the answer is the keys of those that were not found. */
  | { readonly what: 'find'; readonly keys: readonly string[] }
  | { readonly what: 'sample' }
  | { readonly what: 'jump'; readonly ms: number }
  /** Answered when the node has left its cluster. */
  | { readonly what: 'drain'; readonly timeoutMs: number }
  | { readonly what: 'close' };

export type ToNode = { readonly id: number; readonly ask: Ask } | { readonly setup: NodeSetup };

export type FromNode =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly message: string; readonly code: string }
  | { readonly kind: 'reply'; readonly id: number; readonly value?: unknown; readonly error?: string }
  | { readonly kind: 'violation'; readonly violation: Violation }
  /** The event loop had no turn for so long until now, without what it waited for a processor. */
  | { readonly kind: 'stall'; readonly ms: number };
