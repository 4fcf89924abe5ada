import { assert } from '../assert.js';
import type { Clock } from '../environment/clock.js';
import { CLIENTS_TURN_MS } from '../limits.js';
import type { Sharer } from './shares.js';

/** A piece of waiting work. */
interface Work {
  readonly run: () => void;
  /** Whether it goes on after `run`, because it is a step of longer work. */
  readonly isStep: boolean;
}

/** A group of sharers and its waiting work. */
interface Group {
  readonly ones: FairOrder;
  /** Waiting work by sharer. */
  readonly work: Map<string, Work[]>;
}

/** Number of remembered names beyond which those that have no more used time than a newcomer are forgotten. */
const REMEMBERED_MIN_COUNT = 64;

/**
 * Divides the time of the main loop among those that cause work there. In one turn of the loop, work runs at once until
 * it has taken CLIENTS_TURN_MS; later work waits for the next turn. The next to run is the one that has used the least
 * time: first among groups, then among the sharers of a group. So a sharer with little work waits only for the piece of
 * work in progress, however many pieces of others are queued.
 *
 * A piece of work must be short. Longer work is cut into steps and calls {@link goOn} between them; a step is charged
 * for the time until others begin, or until the turn ends.
 *
 * Accounting: every sharer in the order of its group has work, and every group in the order of groups has such a
 * sharer; nobody else has any.
 */
export class WorkTurns {
  readonly #clock: Clock;
  readonly #order = new FairOrder();
  readonly #groups = new Map<string, Group>();
  /** When the first work of this turn of the loop began; undefined: none has begun. */
  #sinceMs: number | undefined;
  /** The sharer that is using the loop, and the time from which its use has not been counted. */
  #current: { readonly sharer: Sharer; readonly fromMs: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Runs a piece of work now, or later if others come first. With `goesOn`, the work continues after `work` has
   * returned, as a step.
   */
  run(sharer: Sharer, work: () => void, { goesOn = false }: { readonly goesOn?: boolean } = {}): void {
    if (!this.#begins(sharer)) this.#wait(sharer, { run: work, isStep: goesOn });
    else if (goesOn) work();
    else this.#do(work);
  }

  /** Whether longer work may continue: undefined if at once, else a promise that resolves when it may. */
  goOn(sharer: Sharer): Promise<void> | undefined {
    if (this.#begins(sharer)) return undefined;
    return new Promise((resolve) => this.#wait(sharer, { run: resolve, isStep: true }));
  }

  /** Runs a piece of work of the sharer that has the loop. */
  #do(work: () => void): void {
    try {
      work();
    } finally {
      this.#count(this.#clock.nowMs());
    }
  }

  /** Whether this turn has time left and nobody else comes first. If so, the loop now belongs to the sharer. */
  #begins(sharer: Sharer): boolean {
    const nowMs = this.#clock.nowMs();
    this.#count(nowMs);
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      this.#awaitTurn();
    }
    if (nowMs - this.#sinceMs >= CLIENTS_TURN_MS || !this.#isNext(sharer)) return false;
    this.#current = { sharer, fromMs: nowMs };
    return true;
  }

  /** Whether nobody who waits comes first. */
  #isNext({ one, group }: Sharer): boolean {
    const ones = this.#groups.get(group)?.ones;
    if (ones?.next !== undefined && (ones.has(one) || !ones.isBefore(one))) return false;
    return this.#order.next === undefined || this.#order.next === group || this.#order.isBefore(group);
  }

  #wait({ one, group }: Sharer, work: Work): void {
    const { ones, work: waiting } = this.#groupOf(group);
    const own = waiting.get(one);
    if (own === undefined) waiting.set(one, [work]);
    else own.push(work);
    ones.wait(one);
    this.#order.wait(group);
  }

  #groupOf(name: string): Group {
    let group = this.#groups.get(name);
    if (group === undefined) {
      group = { ones: new FairOrder(), work: new Map() };
      this.#groups.set(name, group);
    }
    return group;
  }

  #awaitTurn(): void {
    void this.#clock.yield().then(() => this.#turn());
  }

  /**
   * Runs waiting work while there is time. A step is the last work of its turn, because it continues after this
   * returns.
   */
  #turn(): void {
    const startMs = this.#clock.nowMs();
    this.#count(startMs);
    this.#sinceMs = undefined;
    if (this.#order.next === undefined) return;
    this.#sinceMs = startMs;
    this.#awaitTurn();
    for (let nowMs = startMs; nowMs - startMs < CLIENTS_TURN_MS; nowMs = this.#clock.nowMs()) {
      const next = this.#take(nowMs);
      if (next === undefined) return;
      if (next.isStep) {
        next.run();
        return;
      }
      this.#do(next.run);
    }
  }

  /**
   * Takes the next piece of work and gives the loop to its sharer. The sharer's other work is in no order until its
   * time has been counted.
   */
  #take(nowMs: number): Work | undefined {
    const group = this.#order.take();
    if (group === undefined) return undefined;
    const { ones, work } = this.#groupOf(group);
    const one = ones.take() as string;
    const own = work.get(one) as Work[];
    const next = own.shift();
    if (own.length === 0) work.delete(one);
    this.#current = { sharer: { one, group }, fromMs: nowMs };
    return next;
  }

  /** Charges the time used so far to the sharer that has the loop, and frees the loop. */
  #count(nowMs: number): void {
    if (this.#current === undefined) return;
    const { sharer, fromMs } = this.#current;
    this.#current = undefined;
    const { ones, work } = this.#groupOf(sharer.group);
    ones.used(sharer.one, nowMs - fromMs);
    const forgotten = this.#order.used(sharer.group, nowMs - fromMs);
    if (work.has(sharer.one)) ones.wait(sharer.one);
    if (work.size > 0) this.#order.wait(sharer.group);
    for (const group of forgotten) if (this.#groups.get(group)?.work.size === 0) this.#groups.delete(group);
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    // The sharer that has the loop is in no order until its time is counted.
    const { one: current, group: currentGroup } = this.#current?.sharer ?? {};
    for (const [name, { ones, work }] of this.#groups) {
      const isCurrent = name === currentGroup;
      const waiting = [...work.keys()].filter((one) => !isCurrent || one !== current);
      const isAny = [...work.values()].every((own) => own.length > 0) && waiting.every((one) => ones.has(one));
      assert(isAny, () => `work turns: ${name} waits without work`);
      assert(isCurrent || this.#order.has(name) === work.size > 0, () => `work turns: ${name} is never served`);
      ones.verify(name, waiting.length);
    }
  }
}

/**
 * Waiting names in the order of the time that they have used: start-time fair queueing (Goyal et al., 1996). A name
 * that comes after a pause starts with the time that the last served name had used before it was served; of two with
 * equal times, the first to wait comes first.
 */
class FairOrder {
  readonly #usedMs = new Map<string, number>();
  /** The time that the last served name had used before. */
  #servedMs = 0;
  /** Waiting names, the next one last. */
  readonly #waiting: { readonly name: string; readonly usedMs: number }[] = [];
  readonly #names = new Set<string>();
  #lookAtCount = REMEMBERED_MIN_COUNT;

  get next(): string | undefined {
    return this.#waiting.at(-1)?.name;
  }

  has(name: string): boolean {
    return this.#names.has(name);
  }

  /** Whether this name has used less time than all that wait. */
  isBefore(name: string): boolean {
    const next = this.#waiting.at(-1);
    return next === undefined || this.#of(name) < next.usedMs;
  }

  /** Makes a name wait, unless it already does. */
  wait(name: string): void {
    if (this.#names.has(name)) return;
    this.#names.add(name);
    const usedMs = this.#of(name);
    let [from, to] = [0, this.#waiting.length];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if ((this.#waiting[middle]?.usedMs as number) > usedMs) from = middle + 1;
      else to = middle;
    }
    this.#waiting.splice(from, 0, { name, usedMs });
  }

  /** Removes and returns the next name; undefined: nobody waits. */
  take(): string | undefined {
    const next = this.#waiting.pop();
    if (next === undefined) return undefined;
    this.#names.delete(next.name);
    return next.name;
  }

  /** Charges time to a name. Returns the names that are forgotten now, because they count the same as newcomers. */
  used(name: string, ms: number): readonly string[] {
    const before = this.#of(name);
    this.#usedMs.set(name, before + ms);
    // If every name were new, time used would otherwise never count.
    const share = ms / (2 * Math.min(this.#usedMs.size, REMEMBERED_MIN_COUNT));
    this.#servedMs = Math.max(this.#servedMs + share, before);
    return this.#usedMs.size > this.#lookAtCount ? this.#forget() : [];
  }

  #of(name: string): number {
    return Math.max(this.#usedMs.get(name) ?? 0, this.#servedMs);
  }

  #forget(): string[] {
    const forgotten: string[] = [];
    for (const [name, usedMs] of this.#usedMs) if (usedMs <= this.#servedMs) forgotten.push(name);
    for (const name of forgotten) this.#usedMs.delete(name);
    this.#lookAtCount = 2 * Math.max(this.#usedMs.size, REMEMBERED_MIN_COUNT);
    return forgotten;
  }

  /** Throws `InvariantError` unless exactly `count` names wait, each once and in order. */
  verify(group: string, count: number): void {
    const isInOrder = this.#waiting.every(
      ({ usedMs }, i) => i === 0 || usedMs <= (this.#waiting[i - 1]?.usedMs as number),
    );
    assert(isInOrder, () => `work turns: ${group}: out of order`);
    const isRight = this.#waiting.length === count && this.#names.size === count;
    assert(isRight, () => `work turns: ${group}: ${this.#waiting.length} of ${count} wait`);
  }
}
