import { compareNames } from '../../base/names.js';
import type { ClusterNode, ClusterReport, DepartedNode } from '../../metrics/node-report.js';
import { amount, type LooseReport } from './counts.js';
import { fillOf } from './history.js';
import { type Fill, fillShare } from './points.js';

/** Most gone nodes that are remembered; those that went first are forgotten first. */
export const GONE_MAX_COUNT = 100;

/**
 * `lost`: gone without notice. `left`: gone after giving notice. `gone`: the nodes' version does not say which.
 */
type MemberState = 'up' | 'unreachable' | 'lost' | 'left' | 'gone';

export interface Member {
  readonly nodeId: string;
  readonly state: MemberState;
  /**
   * When a node or this page first saw the node in this state, in milliseconds by a node's clock.
   */
  readonly sinceMs: number;
  /** Whether this node serves the page. */
  readonly isThis: boolean;
  /** Share of the ring from 0 to 1; 0 for a node that is gone. */
  readonly ringShare: number;
  /** Where its control plane listens, or listened. */
  readonly controlEndpoint: string;
  /** Why the node does not answer; empty if it does, or is gone. */
  readonly error: string;
  /** The node's last report, which is kept when the node is no longer up. */
  readonly report: LooseReport | undefined;
  readonly reportMs: number;
}

/** The current members, and those that are gone as far as the nodes or this page remember them. */
export class Members {
  #members = new Map<string, Member>();

  /** Applies a report. Returns the changes in words; none for the first report. */
  update(cluster: ClusterReport): string[] {
    const before = this.#members;
    const next = new Map<string, Member>();
    for (const node of cluster.nodes) next.set(node.node_id, memberOf(node, cluster, before.get(node.node_id)));
    const changes = before.size === 0 ? [] : joinedOrSilent(before, next);
    const departed = new Map((cluster.departed ?? []).map((one) => [String(one.node_id), one]));
    const goneIds = new Set([...before.keys(), ...departed.keys()].filter((nodeId) => !next.has(nodeId)));
    const gone = [...goneIds].map((nodeId) => {
      const was = before.get(nodeId);
      const now = goneMember(nodeId, was, { departed: departed.get(nodeId), timeMs: cluster.time_ms });
      if (before.size > 0 && was?.state !== now.state) changes.push(`${nodeId} ${GONE_WORDS[now.state] ?? 'is gone'}`);
      return now;
    });
    for (const member of gone.sort((a, b) => a.sinceMs - b.sinceMs).slice(-GONE_MAX_COUNT)) {
      next.set(member.nodeId, member);
    }
    this.#members = next;
    return changes;
  }

  get(nodeId: string): Member | undefined {
    return this.#members.get(nodeId);
  }

  /** Members sorted by name, including lost ones; those that have left come last. */
  list(): Member[] {
    const hasLeft = ({ state }: Member): number => Number(state === 'left' || state === 'gone');
    return [...this.#members.values()].sort((a, b) => hasLeft(a) - hasLeft(b) || compareNames(a.nodeId, b.nodeId));
  }
}

const GONE_WORDS: Partial<Record<MemberState, string>> = { lost: 'is lost', left: 'has left' };

/** Whether the node is no longer a member. */
export function isGone({ state }: Member): boolean {
  return state !== 'up' && state !== 'unreachable';
}

function memberOf(node: ClusterNode, cluster: ClusterReport, known: Member | undefined): Member {
  const report: LooseReport | undefined = node.state === 'up' ? node.report : undefined;
  const state = report === undefined ? 'unreachable' : 'up';
  return {
    nodeId: node.node_id,
    state,
    sinceMs: known?.state === state ? known.sinceMs : cluster.time_ms,
    isThis: node.node_id === cluster.node_id,
    ringShare: amount(node.ring_share),
    controlEndpoint: String(node.control_endpoint ?? ''),
    error: node.state === 'up' ? '' : String(node.error),
    report: report ?? known?.report,
    reportMs: report === undefined ? (known?.reportMs ?? 0) : cluster.time_ms,
  };
}

function goneMember(
  nodeId: string,
  was: Member | undefined,
  { departed, timeMs }: { readonly departed: DepartedNode | undefined; readonly timeMs: number },
): Member {
  if (departed === undefined && was !== undefined && isGone(was)) return was;
  return {
    nodeId,
    state: departed?.how ?? 'gone',
    sinceMs: departed?.time_ms ?? timeMs,
    isThis: false,
    ringShare: 0,
    controlEndpoint: String(departed?.control_endpoint ?? was?.controlEndpoint ?? ''),
    error: '',
    report: was?.report,
    reportMs: was?.reportMs ?? 0,
  };
}

function joinedOrSilent(before: ReadonlyMap<string, Member>, after: ReadonlyMap<string, Member>): string[] {
  const changes: string[] = [];
  for (const [nodeId, { state }] of after) {
    const was = before.get(nodeId);
    if (was === undefined || isGone(was)) changes.push(`${nodeId} has joined`);
    if (was?.state === 'up' && state === 'unreachable') changes.push(`${nodeId} does not answer`);
    if (was?.state === 'unreachable' && state === 'up') changes.push(`${nodeId} answers again`);
  }
  return changes;
}

/** The figures of a member for its row in the table; null where nothing is known. */
export interface MemberLine {
  readonly member: Member;
  readonly readP99S: number | null;
  readonly readBytesPerS: number | null;
  readonly writtenBytesPerS: number | null;
  readonly prefixHit: number | null;
  readonly lifetimeS: number | null;
  readonly evictionsPerS: number | null;
  readonly loopP99S: number | null;
  readonly pool: Fill | null;
  readonly disk: Fill | null;
  readonly clients: number | null;
  readonly rssBytes: number | null;
  readonly ringShare: number | null;
  readonly uptimeS: number | null;
  /** Rack or zone of its host; null without one. */
  readonly zone: string | null;
  /** Share of the pages read from other nodes that came from another zone. */
  readonly farShare: number | null;
  readonly version: string | null;
  readonly protocol: string | null;
  /** Why reads use a transport other than the wanted one; empty if they do not. */
  readonly fallback: string;
}

export function memberLine(member: Member): MemberLine {
  const report = member.state === 'up' ? member.report : undefined;
  const { recent } = report ?? {};
  const lookups = amount(recent?.lookups?.asked);
  return {
    member,
    readP99S: figure(recent?.read_p99_s),
    readBytesPerS: figure(recent?.read_bytes_per_s),
    writtenBytesPerS: figure(recent?.written_bytes_per_s),
    prefixHit: lookups > 0 ? amount(recent?.lookups?.found) / lookups : null,
    lifetimeS: figure(recent?.page_lifetime_s),
    evictionsPerS: figure(recent?.evictions_per_s),
    loopP99S: figure(report?.event_loop_delay?.p99_s),
    pool: filled(report && fillOf(report.pool)),
    disk: filled(report && fillOf(report.disk ?? undefined)),
    clients: figure(report?.clients?.attached),
    rssBytes: figure(report?.rss_bytes),
    ringShare: member.state === 'up' || member.state === 'unreachable' ? member.ringShare : null,
    uptimeS: figure(report?.uptime_s),
    zone: report?.zone === undefined ? null : String(report.zone),
    farShare: farShareOf(report),
    version: report?.version === undefined ? null : String(report.version),
    protocol: report?.data_protocol === undefined ? null : String(report.data_protocol),
    fallback: fallbackOf(report),
  };
}

/** What all nodes that answer have in common, so that no row needs to show it; null where they differ. */
export interface Shared {
  readonly version: string | null;
  readonly protocol: string | null;
  readonly fallback: string;
  readonly hasDisk: boolean;
  readonly hasClients: boolean;
  readonly hasZones: boolean;
}

export function sharedBy(lines: readonly MemberLine[]): Shared {
  const up = lines.filter(({ member }) => member.state === 'up');
  const [first] = up;
  const isSame = (of: (line: MemberLine) => string | null): boolean =>
    first !== undefined && up.every((line) => of(line) === of(first));
  const isSameTransport = isSame(({ protocol, fallback }) => JSON.stringify([protocol, fallback]));
  return {
    version: isSame(({ version }) => version) ? (first?.version ?? null) : null,
    protocol: isSameTransport ? (first?.protocol ?? null) : null,
    fallback: isSameTransport ? (first?.fallback ?? '') : '',
    hasDisk: lines.some(({ disk }) => disk !== null),
    hasClients: lines.some(({ clients }) => clients !== null),
    hasZones: lines.some(({ zone }) => zone !== null),
  };
}

/** The shortest and the longest page lifetime of these members; null while none of them evicts. */
export function lifetimesOf(lines: readonly MemberLine[]): { readonly least: number; readonly most: number } | null {
  const known = lines.flatMap(({ lifetimeS }) => (lifetimeS === null ? [] : [lifetimeS]));
  return known.length === 0 ? null : { least: Math.min(...known), most: Math.max(...known) };
}

function figure(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
}

function filled(fill: Fill | undefined): Fill | null {
  return fill === undefined || fillShare(fill) === null ? null : fill;
}

function farShareOf(report: LooseReport | undefined): number | null {
  const { host, zone, other } = report?.by_distance?.read_pages ?? {};
  const read = amount(host) + amount(zone) + amount(other);
  return read === 0 ? null : amount(other) / read;
}

function fallbackOf(report: LooseReport | undefined): string {
  const reason = String(report?.transport?.reason ?? '');
  return reason === '' ? '' : `not ${String(report?.transport?.wanted ?? 'the wanted transport')}: ${reason}`;
}
