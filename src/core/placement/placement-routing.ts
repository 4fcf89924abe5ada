import type { Core } from '../binding/core.js';
import { ConsistentHashRing } from '../ring/hash-ring.js';
import type { PlacementSettings } from './placement-options.js';

/** The part of a request that decides which node serves it. */
interface RoutedRequest {
  /** One key per page; equal keys have equal prefixes. */
  readonly keys: readonly string[];
  /** The conversation of the request; undefined if unknown. */
  readonly session: string | number | undefined;
}

/** Chooses the node that serves a request; nodes are numbered from 0. */
export interface PlacementRouter {
  route(request: RoutedRequest): number;
  /** Frees the memory of the router. */
  free(): void;
}

/** Creates the router for these settings. */
export function placementRouter(settings: PlacementSettings, core: Core): PlacementRouter {
  switch (settings.routing) {
    case 'round-robin':
      return new RoundRobin(settings.nodes);
    case 'session':
      return new BySession(settings.nodes);
    case 'prefix':
      return new ByPrefix(settings, core);
  }
}

class RoundRobin implements PlacementRouter {
  readonly #nodes: number;
  #next = 0;

  constructor(nodes: number) {
    this.#nodes = nodes;
  }

  route(): number {
    return this.#next++ % this.#nodes;
  }

  free(): void {}
}

/**
 * Sends requests of one conversation to one node, and each new conversation to the next node.
 *
 * If a trace does not name conversations, a request continues the conversation whose last full page it contains: the
 * last page, or the last but one if the last was not full. A request's first page starts no conversation, because all
 * requests may share a system prompt.
 */
class BySession implements PlacementRouter {
  readonly #turns: RoundRobin;
  readonly #nodeOfSession = new Map<string | number, number>();
  readonly #nodeOfEnd = new Map<string, number>();

  constructor(nodes: number) {
    this.#turns = new RoundRobin(nodes);
  }

  route({ keys, session }: RoutedRequest): number {
    if (session === undefined) return this.#routeByEnds(keys);
    const node = this.#nodeOfSession.get(session) ?? this.#turns.route();
    this.#nodeOfSession.set(session, node);
    return node;
  }

  free(): void {}

  #routeByEnds(keys: readonly string[]): number {
    let node: number | undefined;
    for (let i = keys.length - 1; i > 0 && node === undefined; i--) node = this.#nodeOfEnd.get(keys[i] as string);
    node ??= this.#turns.route();
    for (let i = Math.max(1, keys.length - 2); i < keys.length; i++) this.#nodeOfEnd.set(keys[i] as string, node);
    return node;
  }
}

/** Sends requests with the same beginning to one node: the hash ring's owner of the last of the first pages. */
class ByPrefix implements PlacementRouter {
  readonly #ring: ConsistentHashRing;
  readonly #pages: number;

  constructor({ nodes, vnodes, routingPages }: PlacementSettings, core: Core) {
    this.#ring = new ConsistentHashRing(vnodes, { core });
    this.#ring.setNodes(Array.from({ length: nodes }, (_, node) => `node-${node}`));
    this.#pages = routingPages;
  }

  route({ keys }: RoutedRequest): number {
    const key = keys[Math.min(this.#pages, keys.length) - 1] ?? '';
    return this.#ring.getNodesBatch([key], 1)[0] as number;
  }

  free(): void {
    this.#ring.free();
  }
}
