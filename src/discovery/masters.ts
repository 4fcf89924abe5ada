import { type Endpoint, formatEndpoint, parseEndpoint } from '../base/network.js';
import type { NodeInfo } from '../types.js';

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
  for (const { host, first, isListed } of candidates) {
    if (seats.size >= maxMasters) break;
    const endpoint = masterOf(first, isListed, listed);
    const name = endpoint === undefined ? host : formatEndpoint(endpoint);
    if (!seats.has(name) && !dead.has(name)) seats.set(name, endpoint);
  }
  return [...seats.values()].filter((endpoint) => endpoint !== undefined);
}

/** The masters to speak to: the listed addresses, whether they live or not, and the seats (see {@link seatsOf}). */
export function chooseMasters(members: Iterable<NodeInfo>, rule: MasterRule, dead?: ReadonlySet<string>): Endpoint[] {
  const names = new Set(rule.listed.map(formatEndpoint));
  const further = seatsOf(members, rule, dead).filter((endpoint) => !names.has(formatEndpoint(endpoint)));
  return [...rule.listed, ...further];
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
