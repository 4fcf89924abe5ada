import { assert, assertAtMost } from '../../base/assert.js';
import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { DROP_WAIT_MAX_MS, DROPS_MAX_KEYS, STATEMENT_RETRY_MAX_MS, STATEMENT_RETRY_MIN_MS } from '../../base/limits.js';
import { asFields, type Fields, keyFields, readKeys } from '../../directory/messages/wire.js';
import { eachRequestOf } from '../../directory/owners/owners.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';

/** The call that tells a node to drop pages. */
const METHOD = 'pages.drop';
/** The call that asks a node to announce all its pages again: the answers tell it which ones to drop. */
const RESTATE_METHOD = 'pages.restate';

/** An order to drop a page. */
export interface PageDrop {
  readonly key: string;
  /** The page is void if it is older than this version. */
  readonly voidBelow: number;
  /**
   * `copy`: drop the page only if it is a copy of another node's page. `deleted`: make the directory's shard forget the key, too. `tied`: another
   * node has set another content with the version before `voidBelow`, at the same time; that one is not void.
   */
  readonly reason: DropReason;
  /** Called with a version, not older than `voidBelow`, of a page that the node still has or knows of, when it has answered so. */
  readonly onNewer?: (version: number) => void;
}

/** The reasons, in the order of their numbers on the wire. */
const REASONS = ['superseded', 'copy', 'deleted', 'tied'] as const;
export type DropReason = (typeof REASONS)[number];

/**
 * Drops pages on this node. Resolves when they cannot be read from it any more, not even after a crash: for deleted keys with the newest version
 * that the node still has or knows of under any of them, else with 0.
 */
export type DropHandler = (
  keys: readonly string[],
  voidBelow: readonly number[],
  reason: DropReason,
) => Promise<number>;

export interface PageDropsOptions {
  readonly nodeId: string;
  readonly rpc: RpcClient;
  readonly env: Environment;
  /** The control endpoint of a node; undefined when the node is not a member. */
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** Whether a version is so far ahead that a wrong clock has given it out. Default: none is. */
  readonly isAhead?: (version: number) => boolean;
  /** A node that is not a member is told nothing more after so long. Joining nodes announce pages before all others know of them, hence the wait. */
  readonly joinMs: number;
}

/** The orders that one node has not taken yet. */
interface Owed {
  /** The orders, one for each reason and key (see {@link idOf}); the longest owed first. */
  readonly drops: Map<string, PageDrop>;
  /** Number of orders that were forgotten, because there were too many, since the node was last asked to announce all its pages. */
  forgottenCount: number;
  /** Whether a message is in progress, or will be sent at the end of this turn. */
  isTelling: boolean;
  /** Callbacks for when the present orders have been taken, or have failed. */
  waiting: (() => void)[];
  failures: number;
  /** When the node was first seen not to be a member; undefined if it was a member at the last attempt. */
  strangerSinceMs: number | undefined;
  cancelRetry: (() => void) | undefined;
}

/**
 * Tells nodes to drop pages that are void: overwritten elsewhere, deleted, or copies of pages that were cleared. A node that does not answer is
 * told again until it answers, or has not been a member for a while. Beyond DROPS_MAX_KEYS orders for a node, the oldest are forgotten: once
 * the node answers, it is asked to announce all its pages again, and the directory's answers tell it which ones to drop.
 */
export class PageDrops {
  readonly #options: PageDropsOptions;
  readonly #owed = new Map<string, Owed>();
  /** Nodes that {@link tell} was called for since the last call of {@link told}. */
  readonly #fresh = new Set<string>();
  #handler: DropHandler | undefined;
  #stopped = false;

  constructor(options: PageDropsOptions) {
    this.#options = options;
  }

  /** Answers other nodes; `handler` also carries out the orders to this node itself. A malformed request is refused as a whole. */
  handle(server: RpcServer, handler: DropHandler, restateAll: () => void): void {
    const { isAhead = () => false } = this.#options;
    this.#handler = handler;
    server.handle(RESTATE_METHOD, () => {
      restateAll();
      return {};
    });
    server.handle(METHOD, async (params) => {
      const fields = asFields(params);
      const keys = readKeys(fields, true);
      const voidBelow = readVersions(fields, keys.length);
      const good = keys.flatMap((_, i) => (isAhead(voidBelow[i] as number) ? [] : i));
      const newest = await handler(
        good.map((i) => keys[i] as string),
        good.map((i) => voidBelow[i] as number),
        readReason(fields),
      );
      // The others are dropped by then: the node that asks is told, and asks again.
      if (good.length < keys.length)
        throw new ProtocolError('void_below: a version is too far ahead of the clock here');
      return { newest_version: newest };
    });
  }

  /** Orders a node to drop pages. All orders of one turn of the event loop go in one message at its end. */
  tell(nodeId: string, drops: readonly PageDrop[]): void {
    if (this.#stopped) return;
    let owed = this.#owed.get(nodeId);
    if (owed === undefined) {
      owed = {
        drops: new Map(),
        forgottenCount: 0,
        isTelling: false,
        waiting: [],
        failures: 0,
        strangerSinceMs: undefined,
        cancelRetry: undefined,
      };
      this.#owed.set(nodeId, owed);
    }
    for (const drop of drops) {
      const id = idOf(drop.reason, drop.key);
      const before = owed.drops.get(id)?.voidBelow ?? 0;
      owed.drops.delete(id);
      owed.drops.set(id, { ...drop, voidBelow: Math.max(before, drop.voidBelow) });
    }
    for (const id of owed.drops.keys()) {
      if (owed.drops.size <= DROPS_MAX_KEYS) break;
      owed.drops.delete(id);
      owed.forgottenCount++;
    }
    this.#fresh.add(nodeId);
    if (owed.cancelRetry === undefined && !owed.isTelling) void this.#attempt(nodeId, owed);
  }

  /**
   * Resolves when the nodes that {@link tell} was called for since the last call of this, and those that were told earlier to drop one of these
   * keys, have answered or failed to, after `waitMs` at the latest. Later orders are not waited for, and neither are nodes whose last attempt has
   * failed.
   */
  async told(keys: readonly string[], waitMs = DROP_WAIT_MAX_MS): Promise<void> {
    const answers: Promise<void>[] = [];
    for (const [nodeId, owed] of this.#owed) {
      if (owed.failures > 0 || !(this.#fresh.has(nodeId) || owesAny(owed, keys))) continue;
      answers.push(new Promise((resolve) => owed.waiting.push(resolve)));
    }
    this.#fresh.clear();
    if (answers.length > 0) await within(this.#options.env.clock, waitMs, Promise.all(answers));
  }

  /** For each key, whether the node is a member and may not have deleted the page yet. */
  isOwedBy(nodeId: string, keys: readonly string[]): boolean[] {
    const owed = this.#isMember(nodeId) ? this.#owed.get(nodeId) : undefined;
    return keys.map((key) => owed !== undefined && (owed.forgottenCount > 0 || owed.drops.has(idOf('deleted', key))));
  }

  stop(): void {
    this.#stopped = true;
    for (const owed of this.#owed.values()) {
      owed.cancelRetry?.();
      wake(owed.waiting);
    }
    this.#owed.clear();
  }

  async #attempt(nodeId: string, owed: Owed): Promise<void> {
    owed.isTelling = true;
    // All orders of this turn go together.
    await Promise.resolve();
    while ((owed.drops.size > 0 || owed.forgottenCount > 0) && !this.#stopped) {
      if (this.#hasLeft(nodeId, owed)) break;
      const waiting = owed.waiting;
      owed.waiting = [];
      const isTaken = owed.drops.size > 0 ? await this.#send(nodeId, owed.drops) : await this.#restate(nodeId, owed);
      wake(waiting);
      if (!isTaken) return this.#tryLater(nodeId, owed);
      owed.failures = 0;
    }
    this.#owed.delete(nodeId);
    wake(owed.waiting);
  }

  #isMember(nodeId: string): boolean {
    return nodeId === this.#options.nodeId || this.#options.endpointOf(nodeId) !== undefined;
  }

  #hasLeft(nodeId: string, owed: Owed): boolean {
    const { env, joinMs } = this.#options;
    if (this.#isMember(nodeId)) owed.strangerSinceMs = undefined;
    else owed.strangerSinceMs ??= env.clock.nowMs();
    return owed.strangerSinceMs !== undefined && env.clock.nowMs() - owed.strangerSinceMs > joinMs;
  }

  #tryLater(nodeId: string, owed: Owed): void {
    const { clock, random } = this.#options.env;
    owed.isTelling = false;
    wake(owed.waiting);
    if (this.#stopped) return;
    const pauseMs = Math.min(STATEMENT_RETRY_MIN_MS * 2 ** owed.failures++, STATEMENT_RETRY_MAX_MS);
    owed.cancelRetry = clock.after(pauseMs * (0.75 + random.u32() / 2 ** 33), () => {
      owed.cancelRetry = undefined;
      void this.#attempt(nodeId, owed);
    });
  }

  /** Asks the node to announce all its pages, which makes up for the forgotten orders. False: that has failed. */
  async #restate(nodeId: string, owed: Owed): Promise<boolean> {
    const endpoint = this.#options.endpointOf(nodeId);
    const { forgottenCount } = owed;
    if (endpoint === undefined) return false;
    try {
      await this.#options.rpc.call(endpoint, RESTATE_METHOD, {});
      owed.forgottenCount -= forgottenCount;
      return true;
    } catch {
      return false;
    }
  }

  /** Sends the orders, and removes those that were taken. False: some have failed. */
  async #send(nodeId: string, drops: Map<string, PageDrop>): Promise<boolean> {
    for (const reason of REASONS) {
      const some = [...drops.values()].filter((drop) => drop.reason === reason);
      const keys = some.map(({ key }) => key);
      const outcomes = await eachRequestOf(keys, async (request) => {
        const batch = request.map((i) => some[i] as PageDrop);
        const isTaken = await this.#sendBatch(nodeId, batch, reason);
        // An order that was replaced meanwhile stays.
        const ids = isTaken ? batch.map(({ key }) => idOf(reason, key)) : [];
        for (const [i, id] of ids.entries()) if (drops.get(id) === batch[i]) drops.delete(id);
        return isTaken;
      });
      if (outcomes.includes(false)) return false;
    }
    return true;
  }

  async #sendBatch(nodeId: string, batch: readonly PageDrop[], reason: DropReason): Promise<boolean> {
    const { rpc, endpointOf, nodeId: ownId } = this.#options;
    const keys = batch.map(({ key }) => key);
    const voidBelow = batch.map((drop) => drop.voidBelow);
    const endpoint = endpointOf(nodeId);
    const versions = new Uint8Array(Float64Array.from(voidBelow).buffer);
    try {
      if (nodeId === ownId) {
        tellOfNewer(batch, (await this.#handler?.(keys, voidBelow, reason)) ?? 0);
        return true;
      }
      if (endpoint === undefined) return false;
      const request = { ...keyFields(keys), void_below: versions, reason: REASONS.indexOf(reason) };
      tellOfNewer(batch, readNewest(asFields(await rpc.call(endpoint, METHOD, request))));
      return true;
    } catch {
      return false;
    }
  }

  /** Throws `InvariantError` unless the orders for each node are within their limit, and being sent or due to be sent again. */
  verify(): void {
    for (const [nodeId, { drops, isTelling, cancelRetry, waiting, failures }] of this.#owed) {
      assertAtMost(`page drops: of ${nodeId}`, drops.size, DROPS_MAX_KEYS);
      const isLater = cancelRetry !== undefined;
      assert(isTelling !== isLater, () => `page drops: ${nodeId} is told now ${isTelling}, later ${isLater}`);
      assert(isLater === false || failures > 0, () => `page drops: ${nodeId} is told again after ${failures} failures`);
      assert(
        isTelling || waiting.length === 0,
        () => `page drops: ${waiting.length} wait for ${nodeId}, which is not told`,
      );
      for (const [id, { reason, key }] of drops) {
        assert(id === idOf(reason, key), () => `page drops: ${reason} of ${JSON.stringify(key)} is kept as ${id}`);
      }
    }
    assert(!this.#stopped || this.#owed.size === 0, () => `page drops: ${this.#owed.size} nodes after the end`);
  }
}

/** Identifies an order by reason and key, so that orders for different reasons do not replace each other. */
function idOf(reason: DropReason, key: string): string {
  return `${REASONS.indexOf(reason)}${key}`;
}

function owesAny({ drops }: Owed, keys: readonly string[]): boolean {
  return keys.some((key) => REASONS.some((reason) => drops.has(idOf(reason, key))));
}

function wake(waiting: (() => void)[]): void {
  for (const resolve of waiting.splice(0)) resolve();
}

function tellOfNewer(batch: readonly PageDrop[], newest: number): void {
  for (const { voidBelow, onNewer } of batch) if (newest >= voidBelow) onNewer?.(newest);
}

function readNewest({ newest_version: newest }: Fields): number {
  if (!isVersion(newest)) throw new ProtocolError('newest_version: must be a version');
  return newest;
}

function readReason({ reason }: Fields): DropReason {
  const name = typeof reason === 'number' ? REASONS[reason] : undefined;
  if (name !== undefined) return name;
  throw new ProtocolError(`reason: must be a number from 0 to ${REASONS.length - 1}`);
}

function readVersions({ void_below: bytes }: Fields, count: number): number[] {
  if (!(bytes instanceof Uint8Array) || bytes.length !== count * 8)
    throw new ProtocolError('void_below: must have 8 bytes a key');
  const versions = [...new Float64Array(new Uint8Array(bytes).buffer)];
  if (!versions.every(isVersion)) throw new ProtocolError('void_below: must have versions only');
  return versions;
}
