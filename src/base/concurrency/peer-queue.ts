import { assert, assertAtMost } from '../assert.js';
import { within } from '../environment/clock.js';
import type { Environment } from '../environment/environment.js';
import { type BackoffLimits, jittered, pauseAfter } from './backoff.js';

/** An item that waits for one peer, with its key. */
export type Waiting<Item> = readonly [key: string, item: Item];

interface PeerQueueParts<Item extends object> {
  /** Name of the queue in assertions. */
  readonly name: string;
  readonly env: Pick<Environment, 'clock' | 'random'>;
  readonly backoff: BackoffLimits;
  /**
   * The most items that wait for one peer. Beyond it the oldest are forgotten, and {@link tellAll} makes up for them.
   */
  readonly maxCount: number;
  readonly isMember: (peer: string) => boolean;
  /** Time for which a peer that is no longer a member is still told. Default: 0. */
  readonly graceMs?: number;
  /** Merges a new item into the waiting one with the same key. Default: the new item replaces it. */
  readonly join?: (before: Item, item: Item) => Item;
  /** Tells the peer. Resolves with the items that it has received; all others are sent again later. */
  readonly tell: (peer: string, waiting: readonly Waiting<Item>[]) => Promise<readonly Waiting<Item>[]>;
  /**
   * Tells the peer everything that forgotten items may have said. Resolves with whether it was received. Default:
   * forgotten items are lost.
   */
  readonly tellAll?: (peer: string) => Promise<boolean>;
}

/** The items that one peer has not received. */
interface Queue<Item> {
  /** The oldest first. */
  readonly items: Map<string, Item>;
  /** Items forgotten since the peer was last told all. */
  forgottenCount: number;
  /** Failed attempts since the last success. */
  failures: number;
  /**
   * `telling`: an attempt is in progress, or begins at the end of this turn. `pausing`: the next attempt begins after a
   * pause.
   */
  state: 'telling' | 'pausing';
  pause: Pause<Item> | undefined;
  /** Called when the current attempt has ended. */
  readonly attended: (() => void)[];
  /** When the peer was first seen not to be a member; undefined: it was a member at the last attempt. */
  strangerSinceMs: number | undefined;
}

/** A pause that ends for several peers at one time. */
interface Pause<Item> {
  /** The peers that it has not ended for before, by their queues. */
  readonly peers: Map<Queue<Item>, string>;
  /** Stops its timer; undefined: it has none and never ends, which {@link PeerQueue.verify} finds. */
  readonly cancel: (() => void) | undefined;
}

/**
 * Tells each peer what it must know until it has received it. Failed messages are retried, after pauses that double,
 * until the peer is no longer a member. Only the last of several items under one key is sent, or their merger.
 */
export class PeerQueue<Item extends object> {
  readonly #parts: PeerQueueParts<Item>;
  readonly #queues = new Map<string, Queue<Item>>();
  #isStopped = false;

  constructor(parts: PeerQueueParts<Item>) {
    this.#parts = parts;
  }

  /** Waiting items of all peers. */
  get count(): number {
    let count = 0;
    for (const { items, forgottenCount } of this.#queues.values()) count += items.size + forgottenCount;
    return count;
  }

  /**
   * Adds items for a peer. All items added in one turn of the event loop are sent together at its end, or after
   * `pauseMs` if nothing waits for the peer yet. During a pause after a failure, they wait for its end.
   */
  add(peer: string, waiting: Iterable<Waiting<Item>>, pauseMs = 0): void {
    this.addEach([[peer, waiting]], pauseMs);
  }

  /** Like {@link add} for several peers, which are told together: one timer ends the pause of all of them. */
  addEach(added: Iterable<readonly [peer: string, waiting: Iterable<Waiting<Item>>]>, pauseMs = 0): void {
    if (this.#isStopped) return;
    const begun = new Map<Queue<Item>, string>();
    for (const [peer, waiting] of added) {
      const before = this.#queues.get(peer);
      const queue = before ?? newQueue<Item>();
      for (const [key, item] of waiting) this.#put(queue, key, item);
      if (before !== undefined) continue;
      this.#queues.set(peer, queue);
      begun.set(queue, peer);
    }
    if (begun.size === 0) return;
    if (pauseMs > 0) this.#pause(begun, pauseMs);
    else for (const [queue, peer] of begun) void this.#tell(peer, queue);
  }

  /** Whether an item for which `isMeant` is true waits for the peer, or may have been forgotten. */
  owes(peer: string, isMeant: (item: Item) => boolean): boolean {
    const queue = this.#queues.get(peer);
    if (queue === undefined) return false;
    for (const item of queue.items.values()) if (isMeant(item)) return true;
    return queue.forgottenCount > 0;
  }

  /** Whether an item with this key waits for the peer, or may have been forgotten. */
  has(peer: string, key: string): boolean {
    const queue = this.#queues.get(peer);
    return queue !== undefined && (queue.forgottenCount > 0 || queue.items.has(key));
  }

  /**
   * Waits until each chosen peer's current attempt has ended, at most `waitMs`. Does not wait for peers whose last
   * attempt failed, nor for items added later.
   */
  async attended(isChosen: (peer: string, has: (key: string) => boolean) => boolean, waitMs: number): Promise<void> {
    const ends: Promise<void>[] = [];
    for (const [peer, { items, failures, state, attended }] of this.#queues) {
      if (failures > 0 || state === 'pausing' || !isChosen(peer, (key) => items.has(key))) continue;
      ends.push(new Promise((resolve) => attended.push(resolve)));
    }
    if (ends.length > 0) await within(this.#parts.env.clock, waitMs, Promise.all(ends));
  }

  /**
   * Called when a peer has started, perhaps anew: it is told at once whatever waits for it. That it did not answer
   * before, or has yet to answer an attempt in progress, says nothing about this start.
   */
  started(peer: string): void {
    const before = this.#queues.get(peer);
    if (before === undefined) return;
    const queue: Queue<Item> = { ...newQueue<Item>(), forgottenCount: before.forgottenCount };
    for (const [key, item] of before.items) queue.items.set(key, item);
    queue.attended.push(...before.attended.splice(0));
    endPause(before);
    this.#queues.set(peer, queue);
    void this.#tell(peer, queue);
  }

  /** Stops telling peers that are no longer members. */
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
    // Items added later in this turn are sent along.
    await Promise.resolve();
    while (this.#isCurrent(peer, queue) && queue.items.size + queue.forgottenCount > 0) {
      if (this.#hasLeft(peer, queue)) return this.#end(peer, queue);
      const attended = queue.attended.splice(0);
      const hasHeard = queue.items.size > 0 ? await this.#tellItems(peer, queue) : await this.#tellAll(peer, queue);
      for (const resolve of attended) resolve();
      if (!this.#isCurrent(peer, queue)) return;
      if (!hasHeard) return this.#pause(new Map([[queue, peer]]), pauseAfter(++queue.failures, this.#parts.backoff));
      queue.failures = 0;
    }
    if (this.#isCurrent(peer, queue)) this.#queues.delete(peer);
    endWaiting(queue);
  }

  async #tellItems(peer: string, { items }: Queue<Item>): Promise<boolean> {
    const waiting = [...items];
    const heard = await this.#parts.tell(peer, waiting).catch(() => []);
    // An item that was replaced meanwhile stays.
    for (const [key, item] of heard) if (items.get(key) === item) items.delete(key);
    return heard.length === waiting.length;
  }

  async #tellAll(peer: string, queue: Queue<Item>): Promise<boolean> {
    const { forgottenCount } = queue;
    const hasHeard = (await this.#parts.tellAll?.(peer).catch(() => false)) ?? true;
    if (hasHeard) queue.forgottenCount -= forgottenCount;
    return hasHeard;
  }

  /** Lets these peers pause; they are told again at one time. */
  #pause(peers: Map<Queue<Item>, string>, pauseMs: number): void {
    const { clock, random } = this.#parts.env;
    const cancel = clock.after(jittered(pauseMs, random), () => {
      for (const [queue, peer] of peers) {
        queue.state = 'telling';
        queue.pause = undefined;
        void this.#tell(peer, queue);
      }
    });
    for (const queue of peers.keys()) {
      for (const resolve of queue.attended.splice(0)) resolve();
      queue.state = 'pausing';
      queue.pause = { peers, cancel };
    }
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

  /** Throws `InvariantError` unless the items of each peer are within the limit, and are being sent or will be. */
  verify(): void {
    const { name, maxCount } = this.#parts;
    for (const [peer, { items, state, pause, attended }] of this.#queues) {
      assertAtMost(`${name}: of ${peer}`, items.size, maxCount);
      const isPausing = state === 'pausing';
      assert(isPausing === (pause?.cancel !== undefined), () => `${name}: ${peer} is never told again`);
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
    pause: undefined,
    attended: [],
    strangerSinceMs: undefined,
  };
}

/** Ends the pause of one peer before its time. */
function endPause<Item>(queue: Queue<Item>): void {
  if (queue.pause === undefined) return;
  const { peers, cancel } = queue.pause;
  peers.delete(queue);
  if (peers.size === 0) cancel?.();
}

function endWaiting<Item>(queue: Queue<Item>): void {
  const { attended } = queue;
  endPause(queue);
  for (const resolve of attended.splice(0)) resolve();
}
