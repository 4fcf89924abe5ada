import { assert, assertAtMost } from '../../base/assert.js';
import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { DROP_WAIT_MAX_MS, DROPS_MAX_KEYS, STATEMENT_RETRY_MAX_MS, STATEMENT_RETRY_MIN_MS } from '../../base/limits.js';
import { eachRequestOf } from '../../directory/owners.js';
import { asFields, type Fields, keyFields, readKeys } from '../../directory/wire.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';

const METHOD = 'pages.drop';
/** Asks a node to state all its pages anew: it learns from the answers which ones it is to drop. */
const RESTATE_METHOD = 'pages.restate';

/** Of a page that is to be dropped. */
export interface PageDrop {
  readonly key: string;
  /** It is void when it is older than this version. */
  readonly voidBelow: number;
  /** `copy`: it is to go only if it was copied from another node. `deleted`: and the directory forgets the key. */
  readonly reason: DropReason;
  /** Told when the node has answered that it still has, or knows of, something of that version, not older than `voidBelow`. */
  readonly onNewer?: (version: number) => void;
}

/** Numbers of the wire. */
const REASONS = ['superseded', 'copy', 'deleted'] as const;
export type DropReason = (typeof REASONS)[number];

/**
 * What a node does when it is told. Resolves when the pages can be read from it no more, also after a crash. Of deleted keys: with the newest
 * version of what the node still has, or knows of, under any of them; 0: nothing.
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
  /** Undefined: the node is no member. */
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** A node that is no member is one after so long, or need not be told: nodes that join state pages before all others know of them. */
  readonly joinMs: number;
}

/** What one node is still to be told. */
interface Owed {
  /** One of each reason and key, see {@link idOf}; the longest owed first. */
  readonly drops: Map<string, PageDrop>;
  /** So many more than can be remembered, since the node was last asked to state its pages anew: which ones is not known. */
  forgottenCount: number;
  /** A message is under way, or will be with the end of this turn. */
  isTelling: boolean;
  /** Called when what is owed now has been taken, or has not. */
  waiting: (() => void)[];
  failures: number;
  /** Since then the node is no member; undefined: it was one at the last attempt. */
  strangerSinceMs: number | undefined;
  cancelRetry: (() => void) | undefined;
}

/**
 * Tells nodes to drop pages that the cluster has done with: overwritten elsewhere, deleted, or copies of what was cleared. A node that
 * does not answer is told again until it has, or has been no member for a while; of one that owes more than DROPS_MAX_KEYS the first ones are
 * forgotten: once it answers, it is asked to state all its pages anew, and learns of these from the directory's answers.
 */
export class PageDrops {
  readonly #options: PageDropsOptions;
  readonly #owed = new Map<string, Owed>();
  /** Nodes that have been told of something since {@link told} was called last. */
  readonly #fresh = new Set<string>();
  #handler: DropHandler | undefined;
  #stopped = false;

  constructor(options: PageDropsOptions) {
    this.#options = options;
  }

  /** Answers other nodes, and takes what is for this one. Requests that are not well-formed are refused whole. */
  handle(server: RpcServer, handler: DropHandler, restateAll: () => void): void {
    this.#handler = handler;
    server.handle(RESTATE_METHOD, () => {
      restateAll();
      return {};
    });
    server.handle(METHOD, async (params) => {
      const fields = asFields(params);
      const keys = readKeys(fields, true);
      const newest = await handler(keys, readVersions(fields, keys.length), readReason(fields));
      return { newest_version: newest };
    });
  }

  /** The first attempt follows at once, in one message for all that is told within this turn. */
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
   * Resolves when the nodes that {@link tell} has been called for since the last call of this have answered or failed to, at the latest
   * after `waitMs`; what they are told later is not waited for. Nor are nodes that have not answered before either.
   */
  async told(waitMs = DROP_WAIT_MAX_MS): Promise<void> {
    if (this.#fresh.size === 0) return;
    const answers = [...this.#fresh].flatMap((nodeId) => {
      const owed = this.#owed.get(nodeId);
      return owed?.failures === 0 ? new Promise<void>((resolve) => owed.waiting.push(resolve)) : [];
    });
    this.#fresh.clear();
    if (answers.length > 0) await within(this.#options.env.clock, waitMs, Promise.all(answers));
  }

  /** Whether it is not certain that the node, which is a member, has deleted these. */
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
    // What is told in this turn goes together.
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

  /** Asks for what makes up for all that has been forgotten by now. False: it has failed. */
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

  /** Takes out of `drops` what was sent and taken. False: there is more, which has failed. */
  async #send(nodeId: string, drops: Map<string, PageDrop>): Promise<boolean> {
    for (const reason of REASONS) {
      const some = [...drops.values()].filter((drop) => drop.reason === reason);
      const keys = some.map(({ key }) => key);
      const outcomes = await eachRequestOf(keys, async (request) => {
        const batch = request.map((i) => some[i] as PageDrop);
        const isTaken = await this.#sendBatch(nodeId, batch, reason);
        // What has been told anew meanwhile stays.
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

  /** Throws `InvariantError` unless each node that is owed something is being told or will be, of no more than may be remembered. */
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

/** What is owed for one reason does not take the place of what is owed for another. */
function idOf(reason: DropReason, key: string): string {
  return `${REASONS.indexOf(reason)}${key}`;
}

function wake(waiting: (() => void)[]): void {
  for (const resolve of waiting.splice(0)) resolve();
}

function tellOfNewer(batch: readonly PageDrop[], newest: number): void {
  for (const { voidBelow, onNewer } of batch) if (newest >= voidBelow) onNewer?.(newest);
}

function readNewest({ newest_version: newest }: Fields): number {
  if (!isVersion(newest)) throw new ProtocolError('newest_version: not a version');
  return newest;
}

function readReason({ reason }: Fields): DropReason {
  const name = typeof reason === 'number' ? REASONS[reason] : undefined;
  if (name !== undefined) return name;
  throw new ProtocolError('reason: not a number that is known');
}

function readVersions({ void_below: bytes }: Fields, count: number): number[] {
  if (!(bytes instanceof Uint8Array) || bytes.length !== count * 8)
    throw new ProtocolError('void_below: not 8 bytes a key');
  const versions = [...new Float64Array(new Uint8Array(bytes).buffer)];
  if (!versions.every(isVersion)) throw new ProtocolError('void_below: not versions');
  return versions;
}
