import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import type { NodeInfo } from '../../types.js';

/** The part of a node's configuration that concerns masters. */
export interface MasterRule {
  /** The listed discovery addresses, in order. If a source names them, they may change, and may be none. */
  readonly listed: readonly Endpoint[];
  /** Number of seats for masters. */
  readonly maxMasters: number;
}

/** A host that may get a seat. */
interface Candidate {
  readonly host: string;
  readonly isListed: boolean;
  /** Start time of the host's oldest node. */
  readonly startMs: number;
  /** The node that states the address of the host's master. */
  readonly first: NodeInfo;
}

/**
 * The masters that have a seat: those of the first `maxMasters` hosts with a live node. Hosts of listed addresses come
 * first, then all others, each group by the start of the host's oldest node. The seat of a dead host thus goes to a
 * live one, and goes back when a listed host returns; a joining host does not change the seats of earlier ones.
 *
 * The result depends only on the members, so that nodes with the same members choose the same masters even with
 * different discovery addresses. `dead` has the `host:port` of masters that count as dead although their nodes are
 * members.
 */
export function seatsOf(
  members: Iterable<NodeInfo>,
  { listed, maxMasters }: MasterRule,
  dead: ReadonlySet<string> = new Set(),
): Endpoint[] {
  return takeSeats(members, { listed, maxMasters }, dead).endpoints;
}

function takeSeats(members: Iterable<NodeInfo>, { listed, maxMasters }: MasterRule, dead: ReadonlySet<string>): Seats {
  const byHost = new Map<string, NodeInfo[]>();
  for (const info of members) {
    const nodes = byHost.get(info.controlHost);
    if (nodes === undefined) byHost.set(info.controlHost, [info]);
    else nodes.push(info);
  }
  const candidates = [...byHost.values()].map((nodes) => candidateOf(nodes, listed));
  candidates.sort(
    (a, b) => Number(b.isListed) - Number(a.isListed) || a.startMs - b.startMs || (a.host < b.host ? -1 : 1),
  );
  // A host with two names has one seat.
  const seats = new Map<string, Endpoint | undefined>();
  const hosts = new Set(candidates.flatMap(({ host, isListed }) => (isListed ? [host] : [])));
  let lastStartMs = Number.POSITIVE_INFINITY;
  for (const { host, first, isListed, startMs } of candidates) {
    hosts.add(host);
    const endpoint = masterOf(first, isListed, listed);
    const name = endpoint === undefined ? host : formatEndpoint(endpoint);
    if (!seats.has(name) && !dead.has(name)) seats.set(name, endpoint);
    if (seats.size < maxMasters) continue;
    lastStartMs = isListed ? Number.NEGATIVE_INFINITY : startMs;
    break;
  }
  return { endpoints: [...seats.values()].filter((endpoint) => endpoint !== undefined), hosts, lastStartMs };
}

/** The masters to talk to: the listed addresses, alive or not, and the seats (see {@link seatsOf}). */
export function chooseMasters(members: Iterable<NodeInfo>, rule: MasterRule, dead?: ReadonlySet<string>): Endpoint[] {
  return withListed(rule, seatsOf(members, rule, dead));
}

/**
 * {@link chooseMasters} for changing members. In a large cluster nearly every change concerns a host that started after
 * all hosts with a seat; such changes cost nothing.
 */
export class MasterChoice {
  #rule: MasterRule;
  #seats: Seats | undefined;
  #masters: readonly Endpoint[];
  #members: ReadonlyMap<string, NodeInfo> = new Map();

  constructor(rule: MasterRule) {
    this.#rule = rule;
    this.#masters = rule.listed;
  }

  /**
   * The seats that {@link follow} found last; undefined if that was for other members, or if some masters count as
   * dead.
   */
  seatsOf(members: ReadonlyMap<string, NodeInfo>): readonly Endpoint[] | undefined {
    return members === this.#members ? this.#seats?.endpoints : undefined;
  }

  /** Replaces the rule, from the next call of {@link follow} on. */
  setRule(rule: MasterRule): void {
    this.#rule = rule;
    this.#seats = undefined;
  }

  /**
   * The masters to talk to for `members`, a map that must not change; `changed` has the ids that differ from the
   * previous call.
   */
  follow(
    members: ReadonlyMap<string, NodeInfo>,
    changed: readonly string[],
    dead: ReadonlySet<string>,
  ): readonly Endpoint[] {
    const before = this.#members;
    this.#members = members;
    const isBehind = (info: NodeInfo | undefined): boolean =>
      info === undefined || (this.#seats !== undefined && isBehindAll(info, this.#seats, this.#rule.listed));
    const isSame =
      dead.size === 0 && changed.every((nodeId) => isBehind(before.get(nodeId)) && isBehind(members.get(nodeId)));
    if (this.#seats !== undefined && isSame) return this.#masters;
    const seats = takeSeats(members.values(), this.#rule, dead);
    this.#masters = withListed(this.#rule, seats.endpoints);
    this.#seats = dead.size === 0 ? seats : undefined;
    return this.#masters;
  }
}

function withListed({ listed }: MasterRule, seats: readonly Endpoint[]): Endpoint[] {
  const names = new Set(listed.map(formatEndpoint));
  return [...listed, ...seats.filter((endpoint) => !names.has(formatEndpoint(endpoint)))];
}

/** Hosts with a seat, and where the search for them ended. */
interface Seats {
  readonly endpoints: Endpoint[];
  /** Hosts that were considered for a seat, and all listed hosts. */
  readonly hosts: ReadonlySet<string>;
  /** An unlisted host that started later than this cannot take a seat from the considered hosts. */
  readonly lastStartMs: number;
}

/** Whether the node cannot affect the seats, because its host comes after the last one considered. */
function isBehindAll(info: NodeInfo, { hosts, lastStartMs }: Seats, listed: readonly Endpoint[]): boolean {
  return !hosts.has(info.controlHost) && !isListed(info, listed) && info.incarnation > lastStartMs;
}

export function isSameEndpoints(a: readonly Endpoint[], b: readonly Endpoint[]): boolean {
  return (
    a.length === b.length && a.every((endpoint, i) => formatEndpoint(endpoint) === formatEndpoint(b[i] as Endpoint))
  );
}

/** Returns the candidate of one host. Its oldest listed node, or else its oldest node, states the master's address. */
function candidateOf(nodes: readonly NodeInfo[], listed: readonly Endpoint[]): Candidate {
  const ranked = nodes
    .map((info) => ({ info, isListed: isListed(info, listed) }))
    .sort(
      (a, b) =>
        Number(b.isListed) - Number(a.isListed) ||
        a.info.incarnation - b.info.incarnation ||
        (a.info.nodeId < b.info.nodeId ? -1 : 1),
    );
  const [first] = ranked as [(typeof ranked)[number]];
  const startMs = nodes.reduce((min, { incarnation }) => Math.min(min, incarnation), first.info.incarnation);
  return { host: first.info.controlHost, isListed: first.isListed, startMs, first: first.info };
}

function isListed({ isListed, masterAddr, controlHost }: NodeInfo, listed: readonly Endpoint[]): boolean {
  return isListed || (masterAddr === '' && listed.some(({ host }) => host === controlHost));
}

/**
 * The address of a host's master: the one that the node states, else the listed address of its host, else the host with
 * the port of the first listed address.
 */
function masterOf({ masterAddr, controlHost: host }: NodeInfo, isListed: boolean, listed: readonly Endpoint[]) {
  if (masterAddr !== '') return parseEndpoint(masterAddr);
  if (isListed) return listed.find((endpoint) => endpoint.host === host);
  // A node of an early version states no address, and if a source has named none there is no port to go by.
  return listed[0] === undefined ? undefined : { host, port: listed[0].port };
}
