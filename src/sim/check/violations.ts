/** Kinds of broken guarantees, with a description of each. */
export const VIOLATION_KINDS = {
  bytes: 'a read returned true with bytes that were never set under its key',
  order: 'a read brought a page that had been overwritten, deleted or cleared',
  answer: 'a call returned what it never may',
  late: 'a call took longer than its bound',
  threw: 'a call threw, or a program did',
  lost: 'a page that a node has was not found from another one in time',
  disagree: 'nodes read different contents of a named entry in the end',
  invariant: 'verify() of a store found it broken',
  leak: 'something was left when stores had closed',
  logged: 'an error was logged that says that something is wrong with the program',
  start: 'a node did not start',
  clock: 'the clock of a node ran ahead of the date, and no host had another date',
  events: 'the list that a router keeps by the page events of a node was not what the node had in the end',
  pin: 'a page that was pinned was not in the pool, and nobody had removed it',
  idle: 'the workload did nothing',
} as const;
/** Kind of a broken guarantee. */
export type ViolationKind = keyof typeof VIOLATION_KINDS;

/** A broken guarantee: when, on which node, and what was observed. */
export interface Violation {
  readonly kind: ViolationKind;
  /** The broken rule of the kind. Runs that break the same rule of the same kind count as the same failure. */
  readonly rule: string;
  /** Virtual milliseconds. */
  readonly atMs: number;
  /** Number of the node, from 1; 0: the cluster. */
  readonly node: number;
  readonly detail: string;
  /** Key of the entry, if the violation is about one. */
  readonly key?: string;
}

/** Most violations of one kind and rule to keep; further ones are only counted. */
const KEPT_MAX_COUNT = 10;

export class Violations {
  readonly #kept: Violation[] = [];
  readonly #counts = new Map<string, number>();
  readonly #onViolation: (violation: Violation) => void;

  constructor(onViolation: (violation: Violation) => void = () => {}) {
    this.#onViolation = onViolation;
  }

  add(violation: Violation): void {
    const like = likeness(violation);
    const count = (this.#counts.get(like) ?? 0) + 1;
    this.#counts.set(like, count);
    if (count <= KEPT_MAX_COUNT) this.#kept.push(violation);
    this.#onViolation(violation);
  }

  /** The first violations of each kind and rule, by time. */
  get kept(): readonly Violation[] {
    return this.#kept;
  }

  get count(): number {
    let sum = 0;
    for (const count of this.#counts.values()) sum += count;
    return sum;
  }
}

/** A text that is equal for violations that count as the same failure when a scenario is shrunk. */
export function likeness({ kind, rule }: Violation): string {
  return rule === '' ? kind : `${kind}/${rule}`;
}
