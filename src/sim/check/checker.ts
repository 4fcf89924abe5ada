import { type CallKind, CallWatch } from './call-watch.js';
import { FaultTimes } from './fault-times.js';
import { PageBytes } from './page-bytes.js';
import { type PageRead, ReadOrder, type ReadOrderOptions } from './read-order.js';
import { type ProcessId, Statements } from './statements.js';
import type { Violation, ViolationKind, Violations } from './violations.js';

export interface CheckerOptions extends ReadOrderOptions {
  readonly seed: number;
  /** Virtual time. */
  readonly nowMs: () => number;
  /** For how long a process has stood still since then. */
  readonly frozenMs: (of: ProcessId, sinceMs: number) => number;
  readonly violations: Violations;
  readonly callBoundsMs?: Partial<Record<CallKind, number>>;
}

/** Knows everything that one run has set, and holds what is read and how long calls take against what is promised. */
export class Checker {
  readonly statements = new Statements();
  readonly faults = new FaultTimes();
  readonly bytes: PageBytes;
  readonly watch: CallWatch;
  readonly #order: ReadOrder;
  readonly #options: CheckerOptions;
  #readsCount = 0;

  constructor(options: CheckerOptions) {
    this.#options = options;
    this.bytes = new PageBytes(options.seed);
    this.#order = new ReadOrder(this.statements, this.faults, options);
    const { nowMs, frozenMs, callBoundsMs = {} } = options;
    this.watch = new CallWatch({
      nowMs,
      frozenMs,
      boundsMs: callBoundsMs,
      onLate: ({ node }, kind, tookMs) => {
        this.violated('late', node, { rule: kind, detail: `${kind}: ${tookMs.toFixed(3)} ms` });
      },
    });
  }

  /** Pages that were read and held against the rules. */
  get readsCount(): number {
    return this.#readsCount;
  }

  get violations(): Violations {
    return this.#options.violations;
  }

  nowMs(): number {
    return this.#options.nowMs();
  }

  /** A read that began then has just brought `bytes`; returns the content that they are of, undefined when they are of none. */
  read(
    key: string,
    bytes: Uint8Array,
    { node, process, beginMs }: ProcessId & { beginMs: number },
  ): number | undefined {
    this.#readsCount++;
    const history = this.statements.of(key);
    const content = this.bytes.contentOf(bytes);
    const set = content === undefined ? undefined : history.sets.get(content);
    const problem =
      set === undefined || content === undefined
        ? `what was never set: ${Buffer.from(bytes.subarray(0, 24)).toString('hex')}`
        : set.length !== bytes.length
          ? `content ${content} was set with ${set.length} bytes`
          : this.bytes.problemOf(bytes, history.number, content);
    if (problem !== undefined || content === undefined) {
      const detail = `${key}: ${bytes.length} bytes: ${problem}`;
      this.violated('bytes', node, { rule: set === undefined ? 'unknown' : 'broken', detail, key });
      return undefined;
    }
    const read: PageRead = { node, process, content, beginMs, endMs: this.nowMs() };
    const broken = this.#order.problemOf(history, read);
    if (broken !== undefined) this.violated('order', node, { ...broken, key });
    return content;
  }

  /** The process is no more: what it had under way has no end. */
  cut(id: ProcessId): void {
    this.faults.died(id.node, this.nowMs());
    this.statements.cut(id, this.nowMs());
    this.watch.cut(id);
  }

  violated(kind: ViolationKind, node: number, what: Omit<Violation, 'kind' | 'node' | 'atMs'>): void {
    this.violations.add({ kind, ...what, atMs: this.nowMs(), node });
  }
}
