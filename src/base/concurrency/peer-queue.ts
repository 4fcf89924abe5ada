import { assert, assertAtMost } from '../assert.js';
import { within } from '../environment/clock.js';
import type { Environment } from '../environment/environment.js';
import { type BackoffLimits, jittered, pauseAfter } from './backoff.js';

/** What waits under a key for one peer. */
export type Waiting<Item> = readonly [key: string, item: Item];

interface PeerQueueParts<Item extends object> {
  /** What the queue is called in assertions. */
  readonly name: string;
  readonly env: Pick<Environment, 'clock' | 'random'>;
  readonly backoff: BackoffLimits;
  /**
   * The most items that wait for one peer. Beyond that the oldest are forgotten, and {@link tellAll} makes up for them.
   */
  readonly maxCount: number;
  readonly isMember: (peer: string) => boolean;
  /** Time in which a peer that is no member is still told. Default: 0. */
  readonly graceMs?: number;
  /** Makes one item of what waits under a key and of what comes. Default: what comes takes its place. */
  readonly join?: (before: Item, item: Item) => Item;
  /** Tells the peer. Resolves with what it has heard, which is told no more; all else is told again later. */
  readonly tell: (peer: string, waiting: readonly Waiting<Item>[]) => Promise<readonly Waiting<Item>[]>;
  /**
   * Tells the peer all that forgotten items may have said. Resolves with whether it has heard. Default: nothing makes
   * up for them.
   */
  readonly tellAll?: (peer: string) => Promise<boolean>;
}

/** What one peer has not heard. */
interface Queue<Item> {
  /** The oldest first. */
  readonly items: Map<string, Item>;
  /** Items forgotten since the peer was last told all. */
  forgottenCount: number;
  /** Attempts that have failed since the last one that has not. */
  failures: number;
  /**
   * `telling`: an attempt is under way, or begins at the end of this turn. `pausing`: the next one begins after a
   * pause.
   */
  state: 'telling' | 'pausing';
  /** Ends the pause. */
  endPause: (() => void) | undefined;
  /** Called when the attempt under way has ended. */
  readonly attended: (() => void)[];
  /** When the peer was first seen not to be a member; undefined: it was one at the last attempt. */
  strangerSinceMs: number | undefined;
}

/**
 * Tells each peer what it must know until it has heard. What a peer has not heard is told again, after pauses that
 * double, until the peer is no member. Of two items under one key a peer is told once.
 */
export class PeerQueue<Item extends object> {
  readonly #parts: PeerQueueParts<Item>;
  readonly #queues = new Map<string, Queue<Item>>();
  #isStopped = false;

  constructor(parts: PeerQueueParts<Item>) {
    this.#parts = parts;
  }

  /** Items that wait, of all peers. */
  get count(): number {
    let count = 0;
    for (const { items, forgottenCount } of this.#queues.values()) count += items.size + forgottenCount;
    return count;
  }

  /**
   * Adds items for a peer. All that are added in one turn of the event loop are told together at its end, or after
   * `pauseMs` if nothing waits for the peer yet. While a pause after a failure lasts, they wait for its end.
   */
  add(peer: string, waiting: Iterable<Waiting<Item>>, pauseMs = 0): void {
    if (this.#isStopped) return;
    const before = this.#queues.get(peer);
    const queue = before ?? newQueue<Item>();
    for (const [key, item] of waiting) this.#put(queue, key, item);
    if (before !== undefined) return;
    this.#queues.set(peer, queue);
    if (pauseMs > 0) this.#pause(peer, queue, pauseMs);
    else void this.#tell(peer, queue);
  }

  /** Whether an item that is meant waits for the peer, or may have. */
  owes(peer: string, isMeant: (item: Item) => boolean): boolean {
    const queue = this.#queues.get(peer);
    if (queue === undefined) return false;
    for (const item of queue.items.values()) if (isMeant(item)) return true;
    return queue.forgottenCount > 0;
  }

  /** Whether something that waits for the peer has this key, or may have had it. */
  has(peer: string, key: string): boolean {
    const queue = this.#queues.get(peer);
    return queue !== undefined && (queue.forgottenCount > 0 || queue.items.has(key));
  }

  /**
   * Resolves when an attempt that tells what waits now has ended for each peer that is chosen, after `waitMs` at the
   * latest. Peers whose last attempt has failed are not waited for, and neither is what is added later.
   */
  async attended(isChosen: (peer: string, has: (key: string) => boolean) => boolean, waitMs: number): Promise<void> {
    const ends: Promise<void>[] = [];
    for (const [peer, { items, failures, state, attended }] of this.#queues) {
      if (failures > 0 || state === 'pausing' || !isChosen(peer, (key) => items.has(key))) continue;
      ends.push(new Promise((resolve) => attended.push(resolve)));
    }
    if (ends.length > 0) await within(this.#parts.env.clock, waitMs, Promise.all(ends));
  }

  /** Tells peers that are no members any more nothing from now on. */
  membersChanged(): void {
    for (const [peer, queue] of [...this.#queues]) if (this.#hasLeft(peer, queue)) this.#end(peer, queue);
  }

  stop(): void {
    this.#isStopped = true;
    for (const queue of this.#queues.values()) endWaiting(queue);
    this.#queues.clear();
  }

  #put(queue: Queue<Item>, key: string, item: Item): void {
    const before = queue.items.get(key);
    queue.items.delete(key);
    queue.items.set(key, before === undefined ? item : (this.#parts.join?.(before, item) ?? item));
    if (queue.items.size <= this.#parts.maxCount) return;
    for (const oldest of queue.items.keys()) {
      queue.items.delete(oldest);
      queue.forgottenCount++;
      break;
    }
  }

  #isCurrent(peer: string, queue: Queue<Item>): boolean {
    return this.#queues.get(peer) === queue;
  }

  async #tell(peer: string, queue: Queue<Item>): Promise<void> {
    // What else is added in this turn is told as well.
    await Promise.resolve();
    while (this.#isCurrent(peer, queue) && queue.items.size + queue.forgottenCount > 0) {
      if (this.#hasLeft(peer, queue)) return this.#end(peer, queue);
      const attended = queue.attended.splice(0);
      const hasHeard = queue.items.size > 0 ? await this.#tellItems(peer, queue) : await this.#tellAll(peer, queue);
      for (const resolve of attended) resolve();
      if (!this.#isCurrent(peer, queue)) return;
      if (!hasHeard) return this.#pause(peer, queue, pauseAfter(++queue.failures, this.#parts.backoff));
      queue.failures = 0;
    }
    if (this.#isCurrent(peer, queue)) this.#queues.delete(peer);
    endWaiting(queue);
  }

  async #tellItems(peer: string, { items }: Queue<Item>): Promise<boolean> {
    const waiting = [...items];
    const heard = await this.#parts.tell(peer, waiting).catch(() => []);
    // An item whose place another one has taken meanwhile stays.
    for (const [key, item] of heard) if (items.get(key) === item) items.delete(key);
    return heard.length === waiting.length;
  }

  async #tellAll(peer: string, queue: Queue<Item>): Promise<boolean> {
    const { forgottenCount } = queue;
    const hasHeard = (await this.#parts.tellAll?.(peer).catch(() => false)) ?? true;
    if (hasHeard) queue.forgottenCount -= forgottenCount;
    return hasHeard;
  }

  #pause(peer: string, queue: Queue<Item>, pauseMs: number): void {
    const { clock, random } = this.#parts.env;
    for (const resolve of queue.attended.splice(0)) resolve();
    queue.state = 'pausing';
    queue.endPause = clock.after(jittered(pauseMs, random), () => {
      queue.state = 'telling';
      queue.endPause = undefined;
      void this.#tell(peer, queue);
    });
  }

  #hasLeft(peer: string, queue: Queue<Item>): boolean {
    const { env, isMember, graceMs = 0 } = this.#parts;
    const nowMs = env.clock.nowMs();
    if (isMember(peer)) queue.strangerSinceMs = undefined;
    else queue.strangerSinceMs ??= nowMs;
    return queue.strangerSinceMs !== undefined && nowMs - queue.strangerSinceMs >= graceMs;
  }

  #end(peer: string, queue: Queue<Item>): void {
    this.#queues.delete(peer);
    endWaiting(queue);
  }

  /** Throws `InvariantError` unless what waits for each peer is within its limit, and is being told or will be. */
  verify(): void {
    const { name, maxCount } = this.#parts;
    for (const [peer, { items, state, endPause, attended }] of this.#queues) {
      assertAtMost(`${name}: of ${peer}`, items.size, maxCount);
      const isPausing = state === 'pausing';
      assert(isPausing === (endPause !== undefined), () => `${name}: ${peer} is never told again`);
      assert(
        !isPausing || attended.length === 0,
        () => `${name}: ${attended.length} wait for ${peer}, which is not told`,
      );
    }
    assert(!this.#isStopped || this.#queues.size === 0, () => `${name}: ${this.#queues.size} peers after the end`);
  }
}

function newQueue<Item>(): Queue<Item> {
  const items = new Map<string, Item>();
  return {
    items,
    forgottenCount: 0,
    failures: 0,
    state: 'telling',
    endPause: undefined,
    attended: [],
    strangerSinceMs: undefined,
  };
}

function endWaiting({ endPause, attended }: Queue<unknown>): void {
  endPause?.();
  for (const resolve of attended.splice(0)) resolve();
}
