import { pause } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import {
  MAP_ANSWER_MAX_PAGES,
  MAP_MEMBERS_MAX_COUNT,
  MAP_PAUSE_MIN_MS,
  MAP_PAUSE_PER_MEMBER_MS,
  MAP_RETRY_MS,
  MAP_ROUND_MS,
  MAP_STEADY_AFTER_MS,
  MAP_STEADY_INTERVAL_MS,
  PAGE_MAP_MAX_NODES,
  RPC_CALL_TIMEOUT_MS,
} from '../../base/limits.js';
import type { Keys } from '../../core/index.js';
import { absencesOf, MARK_WORDS, NODE_SURE, PageMap } from '../../core/map/page-map.js';
import { ABSENT, PRESENT, type ProbablePages, UNSURE } from '../../directory/lookups.js';
import { asFields } from '../../directory/messages/wire.js';
import type { Distances } from '../../net/distance.js';
import type { RpcClient } from '../../rpc/client.js';
import type { NodeInfo } from '../../types.js';
import { type MapAnswer, mapQuestionFields, readMapAnswer } from './map-messages.js';

/** Rank of members that are not asked any more; the others have their distance. */
const UNRANKED = 255;

export interface ClusterMapParts {
  readonly nodeId: string;
  readonly rpc: RpcClient;
  readonly env: Environment;
  /** How far members are: of several that have a page, the nearest counts. */
  readonly distances: () => Distances;
  /** Bytes that the map may take; nodes whose pages have no room any more are known in part. */
  readonly maxBytes: number;
}

/**
 * Which member probably has a page: a map of all pages of the cluster, a moment old. Each other member is asked for what
 * happened to its pages, again and again (MAP.md beside this file). In a cluster of more than MAP_MEMBERS_MAX_COUNT
 * members nobody is asked, and the map is empty.
 *
 * What the map says is a suggestion: a page that it names may be gone, and one that it does not name may be there.
 */
export class ClusterMap implements ProbablePages {
  readonly #parts: ClusterMapParts;
  readonly #map = new PageMap();
  readonly #followed = new Map<string, FollowedNode>();
  /** Nodes by number. A number is free when all pages of its last node are forgotten. */
  readonly #nodes: (FollowedNode | undefined)[] = [];
  /** Number of the other members. */
  #othersCount = 0;
  #isClosed = false;

  constructor(parts: ClusterMapParts) {
    this.#parts = parts;
    const { metrics } = parts.env;
    metrics.setGaugeProvider('meshcache_map_pages', () => (this.#isClosed ? 0 : this.#map.stats().entries));
    metrics.setGaugeProvider('meshcache_map_bytes', () => (this.#isClosed ? 0 : this.#map.stats().bytes));
  }

  /** Follows these members, and no others. */
  membersChanged(members: ReadonlyMap<string, NodeInfo>): void {
    if (this.#isClosed) return;
    const isSmall = members.size <= MAP_MEMBERS_MAX_COUNT;
    this.#othersCount = members.size - Number(members.has(this.#parts.nodeId));
    for (const node of this.#followed.values()) {
      const { incarnation } = members.get(node.id) ?? {};
      if (!isSmall || incarnation !== node.incarnation) this.#leave(node);
    }
    if (!isSmall) return;
    for (const [id, { incarnation, controlHost: host, controlPort: port }] of members) {
      if (id === this.#parts.nodeId || this.#followed.has(id)) continue;
      const number = this.#freeNumber();
      if (number === undefined) break;
      const endpoint = { host, port };
      const node = new FollowedNode({ id, incarnation, number, endpoint });
      this.#followed.set(id, node);
      this.#nodes[number] = node;
      void this.#follow(node);
    }
    const distances = this.#parts.distances();
    for (const { id, number } of this.#followed.values()) this.#map.rank(number, distances?.(id) ?? 0);
  }

  /** For each key a member that probably has the page and can say where; undefined: none is known. */
  holdersOf(keys: Keys): (string | undefined)[] {
    if (this.#isClosed || this.#map.stats().entries === 0) return [];
    const nowMs = this.#parts.env.clock.nowMs();
    const names = this.#nodes.map((node) => (node?.isSteady(nowMs) === true ? node.id : undefined));
    return Array.from(this.#map.nodesOf(keys), (number) => names[number - NODE_SURE]);
  }

  /**
   * For each key whether a member has the page, as of at most `maxAgeMs` ago: ABSENT, PRESENT, or UNSURE if only
   * `avoided` members are known to have it. Undefined: the map does not know all members' pages as of then.
   */
  presence(keys: Keys, maxAgeMs: number, avoided: readonly string[]): Uint8Array | undefined {
    if (this.#isClosed || this.#ageMs() > maxAgeMs) return undefined;
    const answers = new Uint8Array(this.#nodes.length);
    for (const [number, node] of this.#nodes.entries()) {
      answers[number] = node !== undefined && avoided.includes(node.id) ? UNSURE : PRESENT;
    }
    const numbers = this.#map.nodesOf(keys);
    const presence = new Uint8Array(numbers.length);
    for (let i = 0; i < numbers.length; i++) presence[i] = answers[(numbers[i] as number) % NODE_SURE] ?? ABSENT;
    return presence;
  }

  /**
   * Milliseconds since the member heard of longest ago was heard of: nothing that is older is missing from the map.
   * Infinity: a member's pages are not known, or not all of them.
   */
  #ageMs(): number {
    const nowMs = this.#parts.env.clock.nowMs();
    if (this.#followed.size < this.#othersCount) return Number.POSITIVE_INFINITY;
    let oldestMs = nowMs;
    for (const node of this.#followed.values()) {
      if (!node.isComplete) return Number.POSITIVE_INFINITY;
      oldestMs = Math.min(oldestMs, node.heardMs);
    }
    return nowMs - oldestMs;
  }

  /** Follows nobody any more, and frees the memory. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const node of this.#followed.values()) node.leaves.abort();
    this.#map.free();
  }

  #freeNumber(): number | undefined {
    const free = this.#nodes.indexOf(undefined);
    if (free >= 0) return free;
    return this.#nodes.length < PAGE_MAP_MAX_NODES ? this.#nodes.length : undefined;
  }

  /** Forgets a node, step by step; its number is free afterwards. */
  #leave(node: FollowedNode): void {
    node.leaves.abort();
    this.#followed.delete(node.id);
    this.#map.rank(node.number, UNRANKED);
    void this.#forget(node).then(() => {
      this.#nodes[node.number] = undefined;
    });
  }

  async #forget(node: FollowedNode): Promise<void> {
    const { clock } = this.#parts.env;
    if (this.#isClosed) return;
    for (const _ of this.#map.forget(node.number)) {
      await clock.yield();
      if (this.#isClosed) return;
    }
  }

  /** Asks a node for its pages, until it leaves. Never rejects. */
  async #follow(node: FollowedNode): Promise<void> {
    const { clock } = this.#parts.env;
    const { signal } = node.leaves;
    while (!signal.aborted) {
      if (node.from === undefined) await this.#beginList(node);
      const pauseMs = Math.min(MAP_ROUND_MS, Math.max(MAP_PAUSE_MIN_MS, this.#followed.size * MAP_PAUSE_PER_MEMBER_MS));
      const askedMs = clock.nowMs();
      const answer = await this.#ask(node, MAP_ROUND_MS - pauseMs).catch(() => undefined);
      if (signal.aborted) return;
      node.answered(clock.nowMs(), answer !== undefined);
      if (answer === undefined) {
        // What a lost answer had of a list is lost, too.
        if (!node.isListed) node.from = undefined;
        await pause(clock, MAP_RETRY_MS, signal);
      } else {
        if (answer.isLost === true) {
          node.from = undefined;
        } else {
          this.#take(node, answer);
          node.heardMs = askedMs;
        }
        // Only an answer with pages is followed by the next question at once: no member can have itself asked without end.
        const pages = answer.isLost === true ? 0 : answer.marks.length / MARK_WORDS;
        const hasMore = pages > 0 && (!node.isListed || pages >= MAP_ANSWER_MAX_PAGES);
        if (!hasMore) await pause(clock, pauseMs, signal);
      }
    }
  }

  async #ask({ endpoint, from, leaves }: FollowedNode, waitMs: number): Promise<MapAnswer> {
    const { rpc, nodeId: follower } = this.#parts;
    const options = { timeoutMs: MAP_ROUND_MS + RPC_CALL_TIMEOUT_MS, signal: leaves.signal };
    const place = typeof from === 'string' ? { after: from } : { list: from as number };
    const question = mapQuestionFields({ follower, waitMs, ...place });
    return readMapAnswer(asFields(await rpc.call(endpoint, 'map.next', question, options)));
  }

  /** Forgets all pages of a node; a list of them begins. */
  async #beginList(node: FollowedNode): Promise<void> {
    // No other list has this number, not even one of an earlier start of this node.
    node.from = this.#parts.env.random.u32();
    node.isCut = false;
    await this.#forget(node);
  }

  #take(node: FollowedNode, { position, marks }: MapAnswer): void {
    const hasRoom = this.#map.stats().bytes < this.#parts.maxBytes;
    const noted = hasRoom ? marks : absencesOf(marks);
    this.#map.note(node.number, noted);
    node.isCut ||= noted.length < marks.length;
    if (position !== undefined) node.from = position;
  }
}

type FollowedNodeParts = Pick<FollowedNode, 'id' | 'incarnation' | 'number' | 'endpoint'>;

/** A member whose pages are in the map. */
class FollowedNode {
  readonly id: string;
  readonly incarnation: number;
  readonly number: number;
  readonly endpoint: Endpoint;
  readonly leaves = new AbortController();
  /** From where its next answer goes on: a position, or the number of the list that is being told; undefined: nowhere. */
  from: string | number | undefined;
  /** Time of the clock at which the last answered question was asked. */
  heardMs = Number.NEGATIVE_INFINITY;
  /** When it answered last, and since when it has answered regularly. */
  #answeredMs = Number.NEGATIVE_INFINITY;
  #steadySinceMs = 0;
  /** Whether pages of the node had no room. */
  isCut = false;

  constructor({ id, incarnation, number, endpoint }: FollowedNodeParts) {
    this.id = id;
    this.incarnation = incarnation;
    this.number = number;
    this.endpoint = endpoint;
  }

  /** Notes that a question has ended. */
  answered(nowMs: number, isAnswer: boolean): void {
    if (!isAnswer || !this.#isFresh(nowMs)) this.#steadySinceMs = nowMs;
    if (isAnswer) this.#answeredMs = nowMs;
  }

  /**
   * Whether the node answers, and has answered regularly for so long that it has been told what happened elsewhere to its
   * pages while it did not answer, if it ever did not.
   */
  isSteady(nowMs: number): boolean {
    return this.#isFresh(nowMs) && nowMs - this.#steadySinceMs >= MAP_STEADY_AFTER_MS;
  }

  #isFresh(nowMs: number): boolean {
    return nowMs - this.#answeredMs <= MAP_STEADY_INTERVAL_MS;
  }

  /** Whether the list of its pages has been told. */
  get isListed(): boolean {
    return typeof this.from === 'string';
  }

  /** Whether all pages of the node are known. */
  get isComplete(): boolean {
    return this.isListed && !this.isCut;
  }
}
