import { assertAtMost } from '../../base/assert.js';
import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import {
  CLEAR_MAX_PREFIXES,
  CLEARS_REQUEST_MAX_COUNT,
  DROP_WAIT_MAX_MS,
  MEMBERS_MAX_COUNT,
  STATEMENT_RETRY_MAX_MS,
  STATEMENT_RETRY_MIN_MS,
} from '../../base/limits.js';
import { asFields, type Fields } from '../../directory/messages/wire.js';
import type { Clear, KnownClears } from '../../directory/shard/known-clears.js';
import { originOf } from '../../directory/shard/removals.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { type MemberChange, startedIn } from './member-log.js';

/** The call that tells a node about clears. */
const METHOD = 'pages.clear';

/**
 * Drops the copies that these clears make void, from pool and disk. Resolves when nobody can read them here, not even
 * after a crash.
 */
export type ClearedDrop = (clears: readonly Clear[]) => Promise<void>;

export interface ClearsOptions {
  readonly nodeId: string;
  readonly known: KnownClears;
  readonly rpc: Pick<RpcClient, 'call'>;
  readonly env: Pick<Environment, 'clock' | 'random'>;
  /** The control endpoint of a node; undefined if the node is not a member. */
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** The live nodes by id, this one included. */
  readonly members: () => ReadonlyMap<string, NodeInfo>;
  /** Takes note of a version. */
  readonly see: (version: number) => void;
  /** Whether a version is so far ahead that a wrong clock must have made it. */
  readonly isAhead: (version: number) => boolean;
  /** Makes this node's shard forget the locations of undated copies that these clears make void. */
  readonly dropUndated: (clears: readonly Clear[]) => Promise<void>;
  /** Time after which every node knows of a change of members. */
  readonly settleMs: number;
}

/**
 * Tells all members which pages of this node are cleared, and executes other nodes' clears. A clear is one fact:
 * everything that a node set before a version is void, wherever a copy of it is. A member that does not answer is told
 * again until it answers or is no longer a member. When a node (re)joins, every member tells it all clears that it
 * knows, also those of nodes that have left, because the joining node may have been away with copies. Members also pass
 * new clears on to nodes that have just joined, which the clearing node may not know yet.
 */
export class Clears {
  readonly known: KnownClears;
  readonly #options: ClearsOptions;
  /** Clears that incarnations of members have yet to hear. */
  readonly #untold: PeerQueue<Clear>;
  /** Incarnations that joined after this node, and when. */
  readonly #young = new Map<string, number>();
  #drop: ClearedDrop = async () => {};
  /** Clears that this node has heard of, with copies that are not all dropped yet. */
  #undone: readonly Clear[] = [];
  #dropping: Promise<void> | undefined;

  constructor(options: ClearsOptions) {
    this.#options = options;
    this.known = options.known;
    this.#untold = new PeerQueue({
      name: 'clears',
      env: options.env,
      backoff: { minMs: STATEMENT_RETRY_MIN_MS, maxMs: STATEMENT_RETRY_MAX_MS },
      maxCount: CLEARS_REQUEST_MAX_COUNT,
      isMember: (start) => this.#isMember(start),
      tell: (start, waiting) => this.#tell(start, waiting),
      tellAll: async (start) => {
        const all = [...options.known].map(waitingOf);
        return (await this.#tell(start, all)).length === all.length;
      },
    });
  }

  /** Handles calls of other nodes; `drop` drops copies here. A malformed request is refused as a whole. */
  handle(server: RpcServer, drop: ClearedDrop): void {
    this.#drop = drop;
    server.handle(METHOD, async (params) => {
      const clears = readClears(asFields(params));
      const good = clears.filter(({ voidBelow }) => !this.#options.isAhead(voidBelow));
      await this.#hear(good);
      // The other clears have been executed by now; the error makes the calling node ask again.
      if (good.length < clears.length) throw new ProtocolError('clears: a version is too far ahead of the clock here');
      return {};
    });
  }

  /**
   * Makes everything void that this node set before this version. Resolves when all members have dropped their copies
   * or failed to answer, after DROP_WAIT_MAX_MS at the latest.
   */
  async clear(voidBelow: number, prefixes: readonly string[] | undefined): Promise<void> {
    const { nodeId, members, known } = this.#options;
    const few = prefixes !== undefined && prefixes.length <= CLEAR_MAX_PREFIXES ? prefixes : undefined;
    const clear = { origin: originOf(nodeId), voidBelow, prefixes: few };
    known.note(clear);
    for (const id of members().keys()) if (id !== nodeId) this.#untold.add(this.#startOf(id), [waitingOf(clear)]);
    const told = this.#untold.attended(() => true, DROP_WAIT_MAX_MS);
    await Promise.all([told, this.#options.dropUndated([clear])]);
  }

  /** Follows a change of members. */
  membersChanged(change: MemberChange): void {
    const { nodeId: ownId, env } = this.#options;
    this.#untold.membersChanged();
    for (const start of this.#young.keys()) if (!this.#isYoung(start)) this.#young.delete(start);
    for (const nodeId of startedIn(change, ownId)) {
      const start = this.#startOf(nodeId);
      // The first members that this node hears of may have been up for any length of time.
      if (change.before.size > 1) this.#young.set(start, env.clock.nowMs());
      if (!this.known.isEmpty) this.#untold.add(start, [...this.known].map(waitingOf));
    }
  }

  /** Whether this incarnation of a node has yet to hear of a clear. */
  owes(nodeId: string, incarnation: number): boolean {
    return this.#untold.owes(`${incarnation} ${nodeId}`, () => true);
  }

  stop(): void {
    this.#untold.stop();
  }

  /** Notes clears, and resolves when these and all earlier ones have been executed. */
  async #hear(clears: readonly Clear[]): Promise<void> {
    for (const { voidBelow } of clears) this.#options.see(voidBelow);
    const news = clears.filter((clear) => this.known.note(clear));
    const passedOn = this.#passOn(news);
    this.#undone = [...this.#undone, ...news];
    while (this.#undone.length > 0) {
      this.#dropping ??= this.#dropUndone().finally(() => {
        this.#dropping = undefined;
      });
      await this.#dropping;
    }
    await passedOn;
  }

  /**
   * Tells nodes that the clearing node may not know yet. Resolves when they have dropped their copies, after
   * DROP_WAIT_MAX_MS at the latest.
   */
  async #passOn(news: readonly Clear[]): Promise<void> {
    const young = news.length === 0 ? [] : [...this.#young.keys()].filter((start) => this.#isYoung(start));
    for (const start of young) this.#untold.add(start, news.map(waitingOf));
    if (young.length > 0) await this.#untold.attended((start) => young.includes(start), DROP_WAIT_MAX_MS);
  }

  #isYoung(start: string): boolean {
    const { settleMs, env } = this.#options;
    const sinceMs = this.#young.get(start) ?? Number.NEGATIVE_INFINITY;
    return env.clock.nowMs() - sinceMs < 2 * settleMs && this.#isMember(start);
  }

  #isMember(start: string): boolean {
    return this.#startOf(nodeOf(start)) === start;
  }

  async #dropUndone(): Promise<void> {
    const clears = this.#undone;
    await this.#options.dropUndated(clears);
    await this.#drop(clears);
    this.#undone = this.#undone.filter((clear) => !clears.includes(clear));
  }

  #startOf(nodeId: string): string {
    return `${this.#options.members().get(nodeId)?.incarnation} ${nodeId}`;
  }

  /**
   * Tells an incarnation of a member, request by request, until one is not answered. Resolves with the executed clears.
   */
  async #tell(start: string, waiting: readonly Waiting<Clear>[]): Promise<readonly Waiting<Clear>[]> {
    const { rpc, endpointOf } = this.#options;
    let told = 0;
    for (const batch of requestsOf(waiting)) {
      const endpoint = endpointOf(nodeOf(start));
      if (endpoint === undefined) break;
      const clears = batch.map(([, { origin, voidBelow, prefixes = null }]) => [origin, voidBelow, prefixes]);
      try {
        await rpc.call(endpoint, METHOD, { clears });
      } catch {
        break;
      }
      told += batch.length;
    }
    return waiting.slice(0, told);
  }

  /** Throws `InvariantError` unless the known clears, and those that wait for each member, are within their limits. */
  verify(): void {
    this.known.verify();
    this.#untold.verify();
    assertAtMost('clears: young members', this.#young.size, MEMBERS_MAX_COUNT);
  }
}

/** Divides clears into requests. */
function* requestsOf(waiting: readonly Waiting<Clear>[]): Generator<readonly Waiting<Clear>[], void> {
  let batch: Waiting<Clear>[] = [];
  let prefixes = 0;
  for (const each of waiting) {
    const more = each[1].prefixes?.length ?? 0;
    if (batch.length === CLEARS_REQUEST_MAX_COUNT || (batch.length > 0 && prefixes + more > CLEAR_MAX_PREFIXES)) {
      yield batch;
      [batch, prefixes] = [[], 0];
    }
    batch.push(each);
    prefixes += more;
  }
  if (batch.length > 0) yield batch;
}

function readClears({ clears }: Fields): Clear[] {
  if (!Array.isArray(clears) || clears.length > CLEARS_REQUEST_MAX_COUNT)
    throw new ProtocolError(`clears: must be a list of at most ${CLEARS_REQUEST_MAX_COUNT}`);
  const read = clears.map((each: unknown): Clear => {
    const [origin, voidBelow, prefixes] = Array.isArray(each) ? (each as unknown[]) : [];
    if (typeof origin !== 'number' || origin >>> 0 !== origin || !isVersion(voidBelow))
      throw new ProtocolError('clears: must have an origin and a version each');
    if (prefixes === null) return { origin, voidBelow, prefixes: undefined };
    if (!Array.isArray(prefixes) || !prefixes.every((prefix) => typeof prefix === 'string'))
      throw new ProtocolError('clears: prefixes must be texts');
    return { origin, voidBelow, prefixes };
  });
  const count = read.reduce((sum, { prefixes = [] }) => sum + prefixes.length, 0);
  if (count > CLEAR_MAX_PREFIXES) throw new ProtocolError(`clears: more than ${CLEAR_MAX_PREFIXES} prefixes`);
  return read;
}

function waitingOf(clear: Clear): Waiting<Clear> {
  return [`${clear.origin} ${clear.voidBelow}`, clear];
}

/** The node that an incarnation belongs to. */
function nodeOf(start: string): string {
  return start.slice(start.indexOf(' ') + 1);
}
