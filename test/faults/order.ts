import { closeSync, openSync, readdirSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/**
 * So long after a set returned true, and after the last fault has ended, no node reads anything older. The node that
 * has set it reads nothing older from the moment of that return, whatever happens.
 */
export const ORDER_BOUND_MS = 10_000;
/** Statements of different nodes that are closer than this are not in order: their clocks count milliseconds. */
const MARGIN_MS = 5;
/**
 * While all nodes hear of each other, their clocks agree so well, whatever their wall clocks say: a message between
 * them may be on its way.
 */
const CLOCKS_AGREE_MS = 1_000;
const FIELDS_COUNT = 10;
const RECORD_BYTES = FIELDS_COUNT * 8;
/** Reads that are written at once. */
const READS_BUFFERED_COUNT = 64;
const RECORDS_READ_COUNT = 4096;
const NAME = /^order-\d+-\d+$/;

/** Milliseconds of the clock that all processes of this machine share, whatever their wall clocks say. */
export function sharedMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

const KINDS = ['set', 'delete', 'clear', 'read'] as const;

/** A call of one node's store on one key, which has ended. */
export interface OrderEvent {
  readonly kind: (typeof KINDS)[number];
  readonly node: number;
  /** Of that node: a node that is started again is another process. */
  readonly process: number;
  /** Of `clear`: -1. */
  readonly key: number;
  /** What was set or read: unique under its key. Of others: -1. */
  readonly content: number;
  readonly beginMs: number;
  readonly endMs: number;
  /** Versions that the node's clock gave out just before and just after the call; 0 for reads. */
  readonly lowVersion: number;
  readonly highVersion: number;
  /** What the call has returned; of reads always true. */
  readonly isTrue: boolean;
}

/**
 * What one process has set, deleted and read, in a file that stays when it is killed. A call that was cut off is not
 * there: it may take effect or not.
 */
export class OrderLog {
  readonly #fd: number;
  readonly #node: number;
  readonly #buffer = new Float64Array(READS_BUFFERED_COUNT * FIELDS_COUNT);
  #count = 0;

  constructor(folder: string, node: number) {
    this.#node = node;
    this.#fd = openSync(join(folder, `order-${node}-${process.pid}`), 'a');
  }

  note(event: Omit<OrderEvent, 'node' | 'process'>): void {
    const { kind, key, content, beginMs, endMs, lowVersion, highVersion, isTrue } = event;
    const fields = [KINDS.indexOf(kind), this.#node, process.pid, key, content];
    this.#buffer.set([...fields, beginMs, endMs, lowVersion, highVersion, Number(isTrue)], this.#count * FIELDS_COUNT);
    this.#count++;
    if (kind !== 'read' || this.#count === READS_BUFFERED_COUNT) this.flush();
  }

  flush(): void {
    if (this.#count > 0) writeSync(this.#fd, new Uint8Array(this.#buffer.buffer, 0, this.#count * RECORD_BYTES));
    this.#count = 0;
  }

  close(): void {
    this.flush();
    closeSync(this.#fd);
  }
}

/** Everything that the processes of one run have noted. A record that a kill has cut off is left out. */
export function* orderEvents(folder: string): Generator<OrderEvent, void> {
  const bytes = new Uint8Array(RECORDS_READ_COUNT * RECORD_BYTES);
  const fields = new Float64Array(bytes.buffer);
  for (const name of readdirSync(folder).filter((each) => NAME.test(each))) {
    const fd = openSync(join(folder, name), 'r');
    try {
      for (let position = 0; ; ) {
        const count = Math.floor(readSync(fd, bytes, 0, bytes.length, position) / RECORD_BYTES);
        if (count === 0) break;
        position += count * RECORD_BYTES;
        for (let i = 0; i < count; i++) yield eventOf(fields.subarray(i * FIELDS_COUNT, (i + 1) * FIELDS_COUNT));
      }
    } finally {
      closeSync(fd);
    }
  }
}

function eventOf(fields: Float64Array): OrderEvent {
  const at = (i: number) => fields[i] as number;
  return {
    kind: KINDS[at(0)] as OrderEvent['kind'],
    node: at(1),
    process: at(2),
    key: at(3),
    content: at(4),
    beginMs: at(5),
    endMs: at(6),
    lowVersion: at(7),
    highVersion: at(8),
    isTrue: at(9) === 1,
  };
}

export interface OrderOptions {
  /** Times from the begin to the end of each fault, by {@link sharedMs}. */
  readonly faults?: readonly (readonly [fromMs: number, toMs: number])[];
  /**
   * Wall clocks were put wrong: statements of nodes that may not have heard of each other's clocks are in the order of
   * their versions.
   */
  readonly hasClockFaults?: boolean;
  /**
   * No page was ever copied to another node: what its node has overwritten, deleted or cleared is gone at once, for
   * every reader.
   */
  readonly hasNoCopies?: boolean;
  /** Default {@link ORDER_BOUND_MS}. */
  readonly boundMs?: number;
  /** Of a key, for people. */
  readonly nameOf?: (key: number) => string;
}

/** Statements of one key that have returned true, and all of its contents. */
interface KeyHistory {
  readonly contents: Map<number, OrderEvent>;
  readonly statements: OrderEvent[];
}

const RULES = {
  'same node': 'a node reads nothing older than what it has set',
  freed: 'its only holder had freed it',
  bound: 'the bound has passed without faults',
} as const;
type Rule = keyof typeof RULES;

export interface OrderProblem {
  readonly rule: Rule;
  readonly detail: string;
}

/** Knows all statements of one run, and finds reads of what was too old then. */
export class OrderJudge {
  readonly #options: OrderOptions;
  readonly #boundMs: number;
  readonly #keys = new Map<number, KeyHistory>();
  readonly #clears: OrderEvent[] = [];

  /** Of `events`, reads are left out. */
  constructor(events: Iterable<OrderEvent>, options: OrderOptions = {}) {
    this.#options = options;
    this.#boundMs = options.boundMs ?? ORDER_BOUND_MS;
    for (const event of events) {
      if (event.kind === 'clear') this.#clears.push(event);
      if (event.kind !== 'set' && event.kind !== 'delete') continue;
      const history = this.#historyOf(event.key);
      if (event.kind === 'set') history.contents.set(event.content, event);
      if (event.isTrue) history.statements.push(event);
    }
  }

  /** Why this must not have been read; undefined: it was new enough. */
  problemOf(read: OrderEvent): OrderProblem | undefined {
    const { contents, statements } = this.#historyOf(read.key);
    const set = contents.get(read.content);
    // It was cut off, or is under way still: newer than everything, for all that is known.
    if (set === undefined) return undefined;
    for (const statement of statements) {
      if (!this.#isOlder(set, statement)) continue;
      const rule = this.#ruleBroken(set, statement, read);
      if (rule !== undefined) return this.#problem(set, statement, read, rule);
    }
    for (const clear of this.#clears) {
      if (clear.process !== set.process || set.endMs >= clear.beginMs) continue;
      const rule = this.#ruleBroken(set, clear, read);
      if (rule !== undefined) return this.#problem(set, clear, read, rule);
    }
    return undefined;
  }

  /** That `statement`, which has made the content of `set` void, was to be seen by that read. */
  #ruleBroken(set: OrderEvent, statement: OrderEvent, read: OrderEvent): Rule | undefined {
    if (statement.endMs >= read.beginMs) return undefined;
    // What a node clears may have been copied by others, which need not have heard of it.
    if (statement.process === read.process && statement.kind !== 'clear') return 'same node';
    if (this.#options.hasNoCopies === true && statement.process === set.process) return 'freed';
    const agedMs = read.beginMs - Math.max(statement.endMs, this.#calmSinceMs(read.beginMs));
    return agedMs > this.#boundMs ? 'bound' : undefined;
  }

  #isOlder(set: OrderEvent, than: OrderEvent): boolean {
    if (set.process === than.process) return set.endMs < than.beginMs;
    if (!this.#areClocksHeard(than.beginMs)) return set.highVersion < than.lowVersion;
    const marginMs = this.#options.hasClockFaults === true ? CLOCKS_AGREE_MS : MARGIN_MS;
    return set.endMs + marginMs < than.beginMs;
  }

  /**
   * Whether time itself is the order: wall clocks are right, or all nodes have heard of each other's clocks by then.
   */
  #areClocksHeard(atMs: number): boolean {
    return this.#options.hasClockFaults !== true || this.#calmSinceMs(atMs) + this.#boundMs <= atMs;
  }

  /** When the last fault before `atMs` ended. */
  #calmSinceMs(atMs: number): number {
    let since = 0;
    for (const [fromMs, toMs] of this.#options.faults ?? []) if (fromMs <= atMs) since = Math.max(since, toMs);
    return since;
  }

  #problem(set: OrderEvent, statement: OrderEvent, read: OrderEvent, rule: Rule): OrderProblem {
    const since = (ms: number) => `${Math.round(read.beginMs - ms)} ms`;
    const name = this.#options.nameOf?.(read.key) ?? `key ${read.key}`;
    const what = statement.kind === 'set' ? `set of content ${statement.content}` : statement.kind;
    const detail =
      `${name}: content ${read.content}, which node ${set.node} (${set.process}) has set until ${since(set.endMs)} before, was read by ` +
      `process ${read.process}; node ${statement.node} (${statement.process}) has had a ${what} from ${since(statement.beginMs)} to ` +
      `${since(statement.endMs)} before`;
    return { rule, detail: `${detail}: ${RULES[rule]}` };
  }

  #historyOf(key: number): KeyHistory {
    let history = this.#keys.get(key);
    if (history === undefined) {
      history = { contents: new Map(), statements: [] };
      this.#keys.set(key, history);
    }
    return history;
  }
}

/** Keys under which the reads that have begun since then have found different contents, with these. */
export function disagreements(reads: Iterable<OrderEvent>, sinceMs: number): Map<number, Set<number>> {
  const found = new Map<number, Set<number>>();
  for (const { kind, key, content, beginMs } of reads) {
    if (kind !== 'read' || beginMs < sinceMs) continue;
    const contents = found.get(key);
    if (contents === undefined) found.set(key, new Set([content]));
    else contents.add(content);
  }
  for (const [key, contents] of found) if (contents.size === 1) found.delete(key);
  return found;
}
