import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import {
  CLIENT_STEP_KEYS,
  DROP_WAIT_MAX_MS,
  DROPS_MAX_KEYS,
  NODE_ID_MAX_BYTES,
  STATEMENT_RETRY_MAX_MS,
  STATEMENT_RETRY_MIN_MS,
} from '../../base/limits.js';
import { isNodeId } from '../../directory/messages/location-columns.js';
import { asFields, type Fields, keyFields, readKeys } from '../../directory/messages/wire.js';
import { eachRequestOf } from '../../directory/owners/owners.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import { indicesWhere } from '../../store/call/key-steps.js';

/** The call that tells a node to drop pages. */
const METHOD = 'pages.drop';
/**
 * The call that asks a node to state all its pages again, to one owner or to all; the answers tell it which ones to
 * drop.
 */
export const RESTATE_METHOD = 'pages.restate';

/** An order to drop a page. */
export interface PageDrop {
  readonly key: string;
  /** The page is void if it is older than this version. */
  readonly voidBelow: number;
  /**
   * `deleted`: the directory's shard also forgets the key. `tied`: another node has set different content with the
   * version just below `voidBelow`, at the same time; that content is not void.
   */
  readonly reason: DropReason;
  /** Called if the node answers that it still has, or knows of, a page with a version not older than `voidBelow`. */
  readonly onNewer?: (version: number) => void;
}

/** The reasons, in the order of their wire numbers. */
const REASONS = ['superseded', 'deleted', 'tied'] as const;
export type DropReason = (typeof REASONS)[number];
/** The order in which drops are sent: last come those that nodes refuse because their version is too far ahead. */
const ORDER = [false, true].flatMap((isAhead) => REASONS.map((reason) => ({ reason, isAhead })));

/**
 * Drops pages on this node. Resolves when they cannot be read from it any more, not even after a crash: for deleted
 * keys with the newest version under any of them that the node still has or knows of, else with 0.
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
  /** The control endpoint of a node; undefined if the node is not a member. */
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** Whether a version is so far ahead that a wrong clock must have made it. Default: no version is. */
  readonly isAhead?: (version: number) => boolean;
  /**
   * Time after which a node that is not a member is no longer told. The delay is needed because joining nodes announce
   * pages before all others know of them.
   */
  readonly joinMs: number;
}

/**
 * Tells nodes to drop void pages: those overwritten elsewhere, or deleted. A node that does not answer is told again
 * until it answers, or has not been a member for a while. Beyond DROPS_MAX_KEYS orders for a node, the oldest are
 * forgotten: once the node answers, it is asked to state all its pages again, and the directory's answers tell it which
 * ones to drop.
 */
export class PageDrops {
  readonly #options: PageDropsOptions;
  readonly #owed: PeerQueue<PageDrop>;
  /** Nodes that {@link tell} was called for since the last call of {@link told}. */
  readonly #fresh = new Set<string>();
  readonly #isAhead: (version: number) => boolean;
  #handler: DropHandler | undefined;

  constructor(options: PageDropsOptions) {
    this.#options = options;
    this.#isAhead = options.isAhead ?? (() => false);
    this.#owed = new PeerQueue({
      name: 'page drops',
      env: options.env,
      backoff: { minMs: STATEMENT_RETRY_MIN_MS, maxMs: STATEMENT_RETRY_MAX_MS },
      maxCount: DROPS_MAX_KEYS,
      isMember: (nodeId) => this.#isMember(nodeId),
      graceMs: options.joinMs,
      join: (before, drop) => ({ ...drop, voidBelow: Math.max(before.voidBelow, drop.voidBelow) }),
      tell: (nodeId, waiting) => this.#send(nodeId, waiting),
      tellAll: (nodeId) => this.#restate(nodeId),
    });
  }

  /**
   * Handles other nodes' calls. `handler` also executes this node's orders to itself; `restate` states all pages again,
   * to the given owner or to all. A malformed request is refused as a whole.
   */
  handle(server: RpcServer, handler: DropHandler, restate: (ownerId?: string) => void): void {
    this.#handler = handler;
    server.handle(RESTATE_METHOD, (params) => {
      const { node_id: nodeId } = asFields(params);
      if (nodeId !== undefined && !isNodeId(nodeId))
        throw new ProtocolError(`${RESTATE_METHOD}: node_id must be text of 1 to ${NODE_ID_MAX_BYTES} bytes`);
      restate(nodeId);
      return {};
    });
    server.handle(METHOD, async (params) => {
      const fields = asFields(params);
      const keys = readKeys(fields, true);
      const voidBelow = readVersions(fields, keys.length);
      const good = indicesWhere(voidBelow, (version) => !this.#isAhead(version));
      const newest = await handler(
        good.map((i) => keys[i] as string),
        good.map((i) => voidBelow[i] as number),
        readReason(fields),
      );
      // The other pages have been dropped by now; the error makes the calling node ask again.
      if (good.length < keys.length)
        throw new ProtocolError('void_below: a version is too far ahead of the clock here');
      return { newest_version: newest };
    });
  }

  /** Orders a node to drop pages. All orders of one turn of the event loop go in one message at its end. */
  tell(nodeId: string, drops: readonly PageDrop[]): void {
    this.#fresh.add(nodeId);
    this.#owed.add(
      nodeId,
      drops.map((drop) => [idOf(drop.reason, drop.key), drop]),
    );
  }

  /**
   * Waits for the nodes that {@link tell} was called for since the last call of this, and for those that were told
   * earlier to drop one of these keys: until they have answered or failed to, `waitMs` at most. Does not wait for later
   * orders, nor for nodes whose last attempt has failed.
   */
  async told(keys: readonly string[], waitMs = DROP_WAIT_MAX_MS): Promise<void> {
    const fresh = new Set(this.#fresh);
    this.#fresh.clear();
    const owesAny = (has: (id: string) => boolean): boolean =>
      keys.some((key) => REASONS.some((reason) => has(idOf(reason, key))));
    await this.#owed.attended((nodeId, has) => fresh.has(nodeId) || owesAny(has), waitMs);
  }

  /** Called when a node has started: it is told at once, whether or not its former start answered. */
  started(nodeId: string): void {
    this.#owed.started(nodeId);
  }

  /** Whether a node has yet to execute an order; orders that it refuses as too far ahead do not count. */
  owes(nodeId: string): boolean {
    return this.#owed.owes(nodeId, ({ voidBelow }) => !this.#isAhead(voidBelow));
  }

  /** For each key, whether the node may not have deleted the page yet, even if it has just ceased to be a member. */
  isOwedBy(nodeId: string, keys: readonly string[]): boolean[] {
    return keys.map((key) => this.#owed.has(nodeId, idOf('deleted', key)));
  }

  stop(): void {
    this.#owed.stop();
  }

  #isMember(nodeId: string): boolean {
    return nodeId === this.#options.nodeId || this.#options.endpointOf(nodeId) !== undefined;
  }

  /** Asks the node to state all its pages, which makes up for forgotten orders. */
  async #restate(nodeId: string): Promise<boolean> {
    const endpoint = this.#options.endpointOf(nodeId);
    if (endpoint === undefined) return false;
    await this.#options.rpc.call(endpoint, RESTATE_METHOD, {});
    return true;
  }

  /** Sends the orders, in {@link ORDER}, until some fail. Resolves with the accepted ones. */
  async #send(nodeId: string, waiting: readonly Waiting<PageDrop>[]): Promise<Waiting<PageDrop>[]> {
    const taken: Waiting<PageDrop>[] = [];
    const byOrder = ORDER.map((): Waiting<PageDrop>[] => []);
    for (const order of waiting) byOrder[this.#rankOf(order[1])]?.push(order);
    for (const [rank, some] of byOrder.entries()) {
      const { reason } = ORDER[rank] as { readonly reason: DropReason };
      const send = async (request: readonly number[]): Promise<boolean> => {
        const batch = request.map((i) => some[i] as Waiting<PageDrop>);
        const drops = batch.map(([, drop]) => drop);
        const isTaken = await this.#sendBatch(nodeId, drops, reason);
        if (isTaken) taken.push(...batch);
        return isTaken;
      };
      const keys = some.map(([, { key }]) => key);
      if ((await eachRequestOf(keys, send)).includes(false)) break;
    }
    return taken;
  }

  /** Drops pages of this node, and yields to other work after each full step. */
  async #dropHere(keys: readonly string[], voidBelow: readonly number[], reason: DropReason): Promise<number> {
    let newest = 0;
    for (let start = 0; start < keys.length; start += CLIENT_STEP_KEYS) {
      const end = start + CLIENT_STEP_KEYS;
      const ofStep = await this.#handler?.(keys.slice(start, end), voidBelow.slice(start, end), reason);
      newest = Math.max(newest, ofStep ?? 0);
      if (end <= keys.length) await this.#options.env.clock.yield();
    }
    return newest;
  }

  /** The position of an order in {@link ORDER}. */
  #rankOf({ reason, voidBelow }: PageDrop): number {
    return REASONS.indexOf(reason) + (this.#isAhead(voidBelow) ? REASONS.length : 0);
  }

  async #sendBatch(nodeId: string, batch: readonly PageDrop[], reason: DropReason): Promise<boolean> {
    const { rpc, endpointOf, nodeId: ownId } = this.#options;
    const keys = batch.map(({ key }) => key);
    const voidBelow = batch.map((drop) => drop.voidBelow);
    const endpoint = endpointOf(nodeId);
    const versions = new Uint8Array(Float64Array.from(voidBelow).buffer);
    try {
      if (nodeId === ownId) {
        tellOfNewer(batch, await this.#dropHere(keys, voidBelow, reason));
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

  /**
   * Throws `InvariantError` unless the orders for each node are within their limit, and are being sent or due to be
   * sent again.
   */
  verify(): void {
    this.#owed.verify();
  }
}

/** Identifies an order by reason and key, so that orders for different reasons do not replace each other. */
function idOf(reason: DropReason, key: string): string {
  return `${REASONS.indexOf(reason)}${key}`;
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
