import { type CallKind, CallWatch } from './call-watch.js';
import { PageBytes } from './page-bytes.js';
import { FaultTimes, type PageRead, ReadOrder, type ReadOrderOptions } from './read-order.js';
import { type ProcessId, Statements } from './statements.js';
import type { Violation, ViolationKind, Violations } from './violations.js';

interface CheckerOptions extends ReadOrderOptions {
  readonly seed: number;
  /** Virtual time in milliseconds. */
  readonly nowMs: () => number;
  /** Milliseconds since `sinceMs` for which a process was frozen. */
  readonly frozenMs: (of: ProcessId, sinceMs: number) => number;
  readonly violations: Violations;
  readonly callBoundsMs?: Partial<Record<CallKind, number>>;
}

/** Records everything that one run sets, and checks reads and the times of calls against the guarantees. */
export class Checker {
  readonly statements = new Statements();
  readonly faults = new FaultTimes();
  readonly bytes: PageBytes;
  readonly watch: CallWatch;
  readonly #order: ReadOrder;
  readonly #options: CheckerOptions;
  #readsCount = 0;
  #expiringReadsCount = 0;

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

  /** Number of pages that were read and checked. */
  get readsCount(): number {
    return this.#readsCount;
  }

  /** Number of checked pages that have an expiry and had not expired. */
  get expiringReadsCount(): number {
    return this.#expiringReadsCount;
  }

  get violations(): Violations {
    return this.#options.violations;
  }

  nowMs(): number {
    return this.#options.nowMs();
  }

  /** Checks the bytes of a read that began at `beginMs`. Returns their content, or undefined if they are wrong. */
  read(
    key: string,
    bytes: Uint8Array,
    { node, process, beginMs, present }: ProcessId & Pick<PageRead, 'beginMs' | 'present'>,
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
    const read: PageRead = { node, process, content, beginMs, endMs: this.nowMs(), present };
    const broken = this.#order.problemOf(history, read);
    if (broken !== undefined) this.violated('order', node, { ...broken, key });
    else if (set !== undefined && Number.isFinite(set.expiresInMs)) this.#expiringReadsCount++;
    return content;
  }

  /** Notes that a process has died, so that its calls in progress never end. */
  cut(id: ProcessId): void {
    this.faults.died(id.node, this.nowMs());
    this.statements.cut(id, this.nowMs());
    this.watch.cut(id);
  }

  violated(kind: ViolationKind, node: number, what: Omit<Violation, 'kind' | 'node' | 'atMs'>): void {
    this.violations.add({ kind, ...what, atMs: this.nowMs(), node });
  }
}
