import type { Labels } from '../base/environment/metrics-sink.js';
import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';

/** One series of a counter. */
export interface CounterTotal {
  readonly labels: Labels;
  amount: number;
}

/** The series that agree in the labels so far, by the value of the next label; the total is that of the last label's branch. */
interface Branch {
  readonly next: Map<string, Branch>;
  total: CounterTotal | undefined;
}

/** What one counter has counted, series by series. Adding costs a look-up a label: no text is made of the labels. */
export class CounterTotals {
  readonly labelNames: readonly string[];
  readonly #name: string;
  readonly #root: Branch = { next: new Map(), total: undefined };
  readonly #totals: CounterTotal[] = [];

  constructor(name: string, labelNames: readonly string[]) {
    this.#name = name;
    this.labelNames = labelNames;
    if (labelNames.length === 0) this.#root.total = this.#begin({});
  }

  /** In the order of their first amounts; a counter without labels has one series from the start. */
  get all(): readonly CounterTotal[] {
    return this.#totals;
  }

  /** `labels`: a value of each of `labelNames`. Throws `ArgumentError` for other labels, and for what is no number from 0 on. */
  add(amount: number, labels: Labels): void {
    if (!Number.isFinite(amount) || amount < 0) {
      throw new ArgumentError(`counter ${this.#name}: its amounts are numbers from 0 on, got ${shown(amount)}`);
    }
    this.#totalOf(labels).amount += amount;
  }

  #totalOf(labels: Labels): CounterTotal {
    let given = 0;
    for (const _ in labels) given++;
    let branch: Branch | undefined = this.#root;
    for (const name of this.labelNames) branch = branch?.next.get(labels[name] as string);
    const isKnown = branch?.total !== undefined && given === this.labelNames.length;
    return isKnown ? (branch?.total as CounterTotal) : this.#newTotal(labels);
  }

  #newTotal(labels: Labels): CounterTotal {
    const names = Object.keys(labels);
    if (names.length !== this.labelNames.length || !names.every((name) => this.labelNames.includes(name))) {
      throw new ArgumentError(`counter ${this.#name}: its labels are ${this.labelNames.join()}, got ${names.join()}`);
    }
    let branch = this.#root;
    for (const name of this.labelNames) {
      const value = labels[name] as string;
      let next = branch.next.get(value);
      if (next === undefined) {
        next = { next: new Map(), total: undefined };
        branch.next.set(value, next);
      }
      branch = next;
    }
    branch.total ??= this.#begin({ ...labels });
    return branch.total;
  }

  #begin(labels: Labels): CounterTotal {
    const total = { labels, amount: 0 };
    this.#totals.push(total);
    return total;
  }
}
