import type { DiscoveryReport } from '../../metrics/node-report.js';
import { amount, type LooseReport } from '../data/counts.js';
import { type Member, type MemberLine, memberLine } from '../data/members.js';
import { make, setHidden, setText } from './dom.js';
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatLatency,
  formatMoment,
  formatPageRate,
  formatShare,
  UNKNOWN,
} from './format.js';

type Fact = readonly [label: string, text: (member: Member, line: MemberLine) => string | null];

const FACTS: readonly Fact[] = [
  ['Version', (_, { version }) => version],
  ['Uptime', (_, { uptimeS }) => (uptimeS === null ? null : formatDuration(uptimeS))],
  ['Started', ({ report }) => (report?.incarnation === undefined ? null : formatMoment(amount(report.incarnation)))],
  ['Control endpoint', ({ controlEndpoint }) => controlEndpoint || null],
  ['Data endpoint', ({ report }) => (report?.data_endpoint ? String(report.data_endpoint) : null)],
  [
    'Reads over',
    (_, { protocol, fallback }) => (protocol === null ? null : fallback === '' ? protocol : `${protocol}, ${fallback}`),
  ],
  ['Finds others by', ({ report }) => foundBy(report?.discovery)],
  ['Ring share', (_, { ringShare }) => (ringShare === null ? null : formatShare(ringShare))],
  [
    'Keys in its directory',
    ({ report }) => (report?.directory === undefined ? null : formatCount(amount(report.directory.keys))),
  ],
  ['Memory', (_, { rssBytes }) => (rssBytes === null ? null : formatBytes(rssBytes))],
  ['Event loop delay p99', (_, { loopP99S }) => (loopP99S === null ? null : formatLatency(loopP99S))],
  ['Evicted', (_, { evictionsPerS }) => (evictionsPerS === null ? null : formatPageRate(evictionsPerS))],
  ['Role', ({ report }) => (report?.role ? String(report.role) : null)],
  ['Write policy', ({ report }) => (report?.write_policy ? String(report.write_policy) : null)],
  ['Placed on storage nodes', ({ report }) => placedText(report)],
  ['Clients', (_, { clients }) => (clients === null ? null : formatCount(clients))],
];

/** The source of other nodes' addresses, and what is wrong with it; null if unknown. */
function foundBy({ source, trouble }: Partial<DiscoveryReport> = {}): string | null {
  if (source === undefined) return null;
  return trouble ? `${source}, which does not answer: ${trouble}` : source;
}

/** How many pages a node has placed, and how many wait or failed; null if it does not place pages. */
function placedText(report: LooseReport | undefined): string | null {
  const placement = report?.placement;
  if (placement === undefined) return null;
  const pages = formatCount(amount(placement.placed_pages));
  const placed = `${pages} pages, ${formatBytes(amount(placement.placed_bytes))}`;
  return `${placed}; ${formatCount(amount(placement.unplaced_pages))} wait, ${formatCount(amount(placement.failed_pages))} failed`;
}

/** Facts about the selected node; hidden if none is selected. */
export class NodeFactsView {
  readonly #section: HTMLElement;
  readonly #cells = FACTS.map(() => make('dd'));

  constructor(section: HTMLElement) {
    this.#section = section;
    const list = make('dl', { class: 'facts' });
    for (const [i, [label]] of FACTS.entries()) {
      list.append(make('div', {}, make('dt', { text: label }), this.#cells[i] as HTMLElement));
    }
    section.append(make('div', { class: 'card node-facts' }, list));
  }

  /** Shows the last known facts of a node, or nothing if `member` is undefined. */
  update(member: Member | undefined): void {
    setHidden(this.#section, member === undefined);
    if (member === undefined) return;
    // A node that is gone is treated as up, so that its last known facts are shown.
    const line = memberLine(member.report === undefined ? member : { ...member, state: 'up' });
    for (const [i, [, text]] of FACTS.entries()) setText(this.#cells[i] as HTMLElement, text(member, line) ?? UNKNOWN);
  }
}
