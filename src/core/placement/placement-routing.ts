import type { Core } from '../binding/core.js';
import { ConsistentHashRing } from '../ring/hash-ring.js';
import type { PlacementSettings } from './placement-options.js';

/** The part of a request that decides which node serves it. */
interface RoutedRequest {
  /** One key a page; equal keys have equal prefixes. */
  readonly keys: readonly string[];
  /** The conversation to which the request belongs; undefined if it is not known. */
  readonly session: string | number | undefined;
}

/** Decides which node serves a request, by its number from 0 on. */
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
 * Requests of one conversation go to one node, each new conversation to the next node.
 *
 * A trace may not name conversations. Then a request goes on with the one that it has the last whole page of: the last
 * page, or the last but one where the last was not full. A request's first page begins no conversation, as all may
 * share a system prompt.
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

/** Requests that begin alike go to one node: the owner, on the hash ring, of the last of the first pages. */
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
