import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import type { NodeInfo } from '../../types.js';

/** What a node's configuration says of masters. */
export interface MasterRule {
  /** The listed discovery addresses, in order; at least one. */
  readonly listed: readonly Endpoint[];
  /** Seats of masters. */
  readonly maxMasters: number;
}

/** The seat that a host has when it is its turn. */
interface Candidate {
  readonly host: string;
  readonly isListed: boolean;
  /** Start of the host's oldest node. */
  readonly startMs: number;
  /** Says where its master is. */
  readonly first: NodeInfo;
}

/**
 * The masters that have a seat: those of the first `maxMasters` hosts that have a live node. Hosts of listed addresses come
 * first, then all others; of both, those first whose oldest node has started earliest. So the seat of a dead host goes to a
 * living one and comes back with a listed host, and a further host that joins changes nothing for those before it.
 *
 * This follows from the members alone, so that nodes that know the same members choose the same masters, also when they were
 * given different discovery addresses. `dead`: `host:port` of masters that count as dead although their nodes are members.
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
  // A host that is reached by two names has one seat.
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

/** The masters to speak to: the listed addresses, whether they live or not, and the seats (see {@link seatsOf}). */
export function chooseMasters(members: Iterable<NodeInfo>, rule: MasterRule, dead?: ReadonlySet<string>): Endpoint[] {
  return withListed(rule, seatsOf(members, rule, dead));
}

/**
 * {@link chooseMasters} of members that change. In a large cluster nearly every change is behind all seats, of a host whose nodes have
 * started later than those of the hosts that have one: then nothing is looked through.
 */
export class MasterChoice {
  readonly #rule: MasterRule;
  #seats: Seats | undefined;
  #masters: readonly Endpoint[];
  #members: ReadonlyMap<string, NodeInfo> = new Map();

  constructor(rule: MasterRule) {
    this.#rule = rule;
    this.#masters = rule.listed;
  }

  /** `changed`: ids of those of `members`, a map that stays as it is, that are others than at the call before. */
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

/** Who has a seat, and where the search for them ended. */
interface Seats {
  readonly endpoints: Endpoint[];
  /** Hosts that were looked at for a seat, and all listed ones. */
  readonly hosts: ReadonlySet<string>;
  /** A host that is not listed and has started later comes behind all of these. */
  readonly lastStartMs: number;
}

/** Whether the node makes no difference to the seats, be it there or not: its host comes behind the last that was looked at. */
function isBehindAll(info: NodeInfo, { hosts, lastStartMs }: Seats, listed: readonly Endpoint[]): boolean {
  return !hosts.has(info.controlHost) && !isListed(info, listed) && info.incarnation > lastStartMs;
}

export function isSameEndpoints(a: readonly Endpoint[], b: readonly Endpoint[]): boolean {
  return (
    a.length === b.length && a.every((endpoint, i) => formatEndpoint(endpoint) === formatEndpoint(b[i] as Endpoint))
  );
}

/** Of one host's nodes the oldest that is listed, else the oldest, says where the host's master is. */
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

/** A node that does not say where its host's master is has it at the listed address of its host, or at the first one's port. */
function masterOf({ masterAddr, controlHost: host }: NodeInfo, isListed: boolean, listed: readonly Endpoint[]) {
  if (masterAddr !== '') return parseEndpoint(masterAddr);
  if (isListed) return listed.find((endpoint) => endpoint.host === host);
  return { host, port: (listed[0] as Endpoint).port };
}
