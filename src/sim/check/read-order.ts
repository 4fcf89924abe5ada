import type { KeyHistory, ProcessId, Statement, Statements } from './statements.js';

/**
 * What a fault does to nodes: `silences` keeps nodes that run from answering, or from answering in time; `ends` only
 * ends and starts processes.
 */
export type FaultEffect = 'silences' | 'ends';

/** Times of faults. During a fault, and for a while after it, fewer guarantees hold. */
export class FaultTimes {
  readonly #spans: { readonly fromMs: number; toMs: number; readonly effect: FaultEffect }[] = [];
  /** When processes began to be used, by process. */
  readonly #starts = new Map<number, number>();
  readonly #deaths: { readonly node: number; readonly atMs: number }[] = [];

  /** Notes that a process of the node has died and lost its memory. */
  died(node: number, atMs: number): void {
    this.#deaths.push({ node, atMs });
  }

  /** Notes that a process may be used from now on. */
  started(process: number, atMs: number): void {
    this.#starts.set(process, atMs);
  }

  /** When a process began to be used; Infinity for one that is not known. */
  startMs(process: number): number {
    return this.#starts.get(process) ?? Number.POSITIVE_INFINITY;
  }

  /** The number of nodes on which a process died in this period. */
  deathsCount(fromMs: number, toMs: number): number {
    const nodes = new Set<number>();
    for (const { node, atMs } of this.#deaths) if (atMs >= fromMs && atMs <= toMs) nodes.add(node);
    return nodes.size;
  }

  /** Begins a fault; the returned function ends it. */
  begin(atMs: number, effect: FaultEffect = 'silences'): (atMs: number) => void {
    const span = { fromMs: atMs, toMs: Number.POSITIVE_INFINITY, effect };
    this.#spans.push(span);
    return (endMs) => {
      span.toMs = endMs;
    };
  }

  /**
   * End of the last fault, of this effect if one is given, that had begun by `atMs`: 0 if there was none, Infinity while
   * one lasts.
   */
  calmSinceMs(atMs: number, of?: FaultEffect): number {
    let since = 0;
    for (const { fromMs, toMs, effect } of this.#spans) {
      if (fromMs <= atMs && toMs > since && (of ?? effect) === effect) since = toMs;
    }
    return since;
  }
}

/**
 * How long after the last fault a node may still read a content older than the last set, delete or clear, in
 * milliseconds.
 */
export const ORDER_BOUND_MS = 10_000;
/** Calls of different nodes within this time have no order, because wall clocks count milliseconds. */
const MARGIN_MS = 5;

/**
 * How far the nodes' clocks may differ while all nodes hear of each other, in milliseconds: as long as a message may be
 * on its way. Wall clocks do not matter.
 */
const CLOCKS_AGREE_MS = 250;

/** Rules that forbid reading a page, with their texts. */
const ORDER_RULES = {
  'same-node': 'a node reads nothing older than what it has set, deleted or cleared itself',
  freed: 'its only holder had freed it before the read began',
  calm: 'there had been no fault for long, so every node had dropped it before that call returned',
  answering: 'its node had started before that call, and no node had been kept from answering for long',
  bound: 'the bound has passed without faults',
  unset: 'it was set after the read had ended',
  expired: 'it had expired before the read began',
} as const;
type OrderRule = keyof typeof ORDER_RULES;

interface OrderProblem {
  readonly rule: OrderRule;
  readonly detail: string;
}

/** A read that has delivered a page. */
export interface PageRead extends ProcessId {
  readonly content: number;
  readonly beginMs: number;
  readonly endMs: number;
  /** The present of the reading node's hybrid clock when it began. */
  readonly present: number;
}

export interface ReadOrderOptions {
  /**
   * Whether wall clocks are wrong at times. If so, calls of nodes that may not have heard of each other's clocks are
   * ordered by their versions.
   */
  readonly hasClockFaults: boolean;
  /** Number of directory owners of a key. If as many nodes die, perhaps no node is left that knows the last set. */
  readonly replicas: number;
  /** Whether pages are copied to other nodes, by hot reads, pins or drains. */
  readonly hasCopies: boolean;
}

/**
 * Compares reads with what was set, deleted and cleared before they began.
 *
 * A page is void once a call that began after the page's own `set` had ended has returned true: a `set` of a named
 * entry, a `delete`, or a `clear` by the process that had set the page. Computed pages void nothing, because any of
 * their contents is right. The {@link ORDER_RULES} say when a void page may no longer be read.
 */
export class ReadOrder {
  readonly #statements: Statements;
  readonly #faults: FaultTimes;
  readonly #options: ReadOrderOptions;

  constructor(statements: Statements, faults: FaultTimes, options: ReadOrderOptions) {
    this.#statements = statements;
    this.#faults = faults;
    this.#options = options;
  }

  /** The rule that the read has broken; undefined if its content was recent enough. */
  problemOf(history: KeyHistory, read: PageRead): OrderProblem | undefined {
    const set = history.sets.get(read.content);
    if (set === undefined || set.beginMs > read.endMs) {
      return { rule: 'unset', detail: `${history.name}: content ${read.content}: ${ORDER_RULES.unset}` };
    }
    if (this.#isExpired(history, set, read)) {
      const detail = `${history.name}: node ${read.node} read ${set.kind} content ${read.content} from ${ms(read.beginMs)} on: ${ORDER_RULES.expired}`;
      return { rule: 'expired', detail };
    }
    const { acknowledged } = history;
    // A call that ended before the page was set is not newer than it, whatever clocks say.
    for (let i = acknowledged.length - 1; i >= 0; i--) {
      const by = acknowledged[i] as Statement;
      if (by.endMs <= set.beginMs) break;
      const problem = this.#against(history, set, by, read);
      if (problem !== undefined) return problem;
    }
    const { clears } = this.#statements;
    for (let i = clears.length - 1; i >= 0; i--) {
      const clear = clears[i] as Statement;
      if (clear.endMs <= set.beginMs) break;
      if (clear.process !== set.process || !history.name.startsWith(clear.scope)) continue;
      const problem = this.#against(history, set, clear, read);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  /**
   * Whether a page had expired by the clock of the reading node, which never goes back, or by virtual time. Virtual
   * time does not count if clocks were wrong and nodes may not have heard of each other's. For a computed page, the
   * latest expiry of all its sets counts.
   */
  #isExpired(history: KeyHistory, set: Statement, read: PageRead): boolean {
    if (!Number.isFinite(set.expiresInMs)) return false;
    const all = set.kind === 'named' ? [set] : [...history.sets.values()].filter(({ kind }) => kind === 'computed');
    const setBefore = all.filter(({ beginMs }) => beginMs <= read.endMs);
    if (setBefore.every(({ expiredBy }) => expiredBy <= read.present)) return true;
    if (!this.#areClocksHeard(read.beginMs)) return false;
    const lateMs = this.#options.hasClockFaults ? CLOCKS_AGREE_MS : MARGIN_MS;
    return setBefore.every(({ endMs, expiresInMs }) => endMs + expiresInMs + lateMs <= read.beginMs);
  }

  #against(history: KeyHistory, set: Statement, by: Statement, read: PageRead): OrderProblem | undefined {
    if (by.kind === 'computed' || by.endMs >= read.beginMs || !this.#isOlder(set, by)) return undefined;
    if (set.kind === 'computed' && isRenewed(history, set, by, read)) return undefined;
    const rule = this.#ruleBroken(set, by, read);
    if (rule === undefined) return undefined;
    const what = by.kind === 'named' ? `set content ${by.content}` : by.kind === 'delete' ? 'deleted it' : 'cleared';
    const detail =
      `${history.name}: node ${read.node} read ${set.kind} content ${set.content} from ${ms(read.beginMs)} to ${ms(read.endMs)}, which node ${set.node} ` +
      `(process ${set.process}) had set from ${ms(set.beginMs)} to ${ms(set.endMs)}; node ${by.node} (process ${by.process}) ${what} from ` +
      `${ms(by.beginMs)} to ${ms(by.endMs)}: ${ORDER_RULES[rule]}`;
    return { rule, detail };
  }

  #ruleBroken(set: Statement, by: Statement, read: PageRead): OrderRule | undefined {
    if (by.process === read.process) return 'same-node';
    if (!this.#options.hasCopies && by.process === set.process && set.kind === 'named') return 'freed';
    const calmSinceMs = this.#faults.calmSinceMs(read.beginMs);
    const firstMs = Math.min(by.beginMs, set.beginMs);
    if (calmSinceMs + ORDER_BOUND_MS <= firstMs) return 'calm';
    if (this.#isAnswering(firstMs, by, read)) return 'answering';
    if (read.beginMs - Math.max(by.endMs, calmSinceMs) <= ORDER_BOUND_MS) return undefined;
    // While the network has faults, perhaps only one owner has heard of the call.
    const wasCalm = this.#faults.calmSinceMs(by.endMs) + ORDER_BOUND_MS <= by.beginMs;
    const witnesses = wasCalm ? Math.min(this.#options.replicas, by.members) : 1;
    return this.#faults.deathsCount(by.beginMs, read.beginMs) < witnesses ? 'bound' : undefined;
  }

  /**
   * Whether processes have only ended and started since long before `firstMs`, the reading one before `by`, and an owner
   * lives that has heard of `by`: then the reading node was told before `by` returned.
   */
  #isAnswering(firstMs: number, by: Statement, read: PageRead): boolean {
    if (this.#faults.startMs(read.process) >= by.beginMs) return false;
    if (this.#faults.calmSinceMs(read.beginMs, 'silences') + ORDER_BOUND_MS > firstMs) return false;
    // A node that died shortly before may still have counted as an owner.
    const sinceMs = by.beginMs - ORDER_BOUND_MS;
    return this.#faults.deathsCount(sinceMs, read.beginMs) < Math.min(this.#options.replicas, by.members);
  }

  #isOlder(set: Statement, than: Statement): boolean {
    if (set.process === than.process) return set.endMs < than.beginMs;
    if (!this.#areClocksHeard(than.beginMs)) return set.highVersion < than.lowVersion;
    const marginMs = this.#options.hasClockFaults ? CLOCKS_AGREE_MS : MARGIN_MS;
    return set.endMs + marginMs < than.beginMs;
  }

  /**
   * Whether virtual time orders calls: wall clocks are right, or all nodes have heard of each other's clocks by `atMs`.
   */
  #areClocksHeard(atMs: number): boolean {
    return !this.#options.hasClockFaults || this.#faults.calmSinceMs(atMs) + ORDER_BOUND_MS <= atMs;
  }
}

/**
 * Whether the page of `set` may have become another node's own page: a node that sets a computed page keeps any content
 * of it that it has, even a copy or a page that it has not dropped yet. With a clear, this may happen at any time on a
 * node that was cut off and still has its copy; otherwise it must have happened before `by` ended.
 */
function isRenewed({ sets }: KeyHistory, set: Statement, by: Statement, read: PageRead): boolean {
  for (const other of sets.values()) {
    if (other === set || other.kind !== 'computed') continue;
    if (by.kind === 'clear') {
      if (other.process !== by.process && other.beginMs < read.endMs) return true;
    } else if (other.beginMs < by.endMs && other.endMs > set.beginMs && other.endMs > by.beginMs) {
      return true;
    }
  }
  return false;
}

function ms(time: number): string {
  return Number.isFinite(time) ? `${time.toFixed(3)} ms` : 'never';
}
