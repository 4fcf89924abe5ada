import { compareNames } from '../../base/names.js';
import { isGone, type Member, type MemberLine, type Shared, sharedBy } from '../data/members.js';
import { fillShare } from '../data/points.js';
import { isolated, make, setAttribute, setHidden, setText, setWidth } from './dom.js';
import {
  formatByteRate,
  formatBytes,
  formatCount,
  formatDuration,
  formatLatency,
  formatMoment,
  formatPageRate,
  formatShare,
  UNKNOWN,
} from './format.js';

const NAME = 'node';
const STATE = 'state';
/** States in the order in which an operator wants to see them. */
const STATE_ORDER = ['lost', 'unreachable', 'up', 'left', 'gone'];

interface Order {
  readonly key: string;
  readonly isDescending: boolean;
}

/** The table of members: one row per node. On narrow screens rows become cards but keep their ARIA roles. */
export class MembersView {
  readonly #body = make('tbody', { attributes: { role: 'rowgroup' } });
  readonly #headers = new Map<string, HTMLElement>();
  readonly #rows = new Map<string, Row>();
  readonly #shared = make('p', { class: 'note shared' });
  readonly #onSelect: (nodeId: string) => void;
  #order: Order = { key: NAME, isDescending: false };
  #lines: readonly MemberLine[] = [];

  constructor(section: HTMLElement, onSelect: (nodeId: string) => void) {
    this.#onSelect = onSelect;
    const head = make('tr', { attributes: { role: 'row' } });
    head.append(this.#header(NAME, 'Node'), this.#header(STATE, 'State'));
    head.append(...MEMBER_COLUMNS.map(({ key, label }) => this.#header(key, label)));
    const caption = make('caption', { class: 'visually-hidden', text: 'Members of the cluster' });
    const thead = make('thead', { attributes: { role: 'rowgroup' } }, head);
    const attributes = { role: 'table' };
    const table = make('table', { class: 'figures members', attributes }, caption, thead, this.#body);
    const scroll = { role: 'region', tabindex: '0', 'aria-label': 'Members of the cluster' };
    section.append(this.#shared, make('div', { class: 'card scroll members-scroll', attributes: scroll }, table));
  }

  /** Shows the members. If `isStale`, the states are those of the last answer, which was some time ago. */
  update(lines: readonly MemberLine[], isStale: boolean): void {
    this.#lines = lines;
    const shared = sharedBy(lines);
    setText(this.#shared, sharedText(shared));
    for (const { key, isShown } of MEMBER_COLUMNS) {
      setHidden(this.#headers.get(key) as HTMLElement, isShown !== undefined && !isShown(shared));
    }
    const isKnown = new Set(lines.map(({ member }) => member.nodeId));
    for (const [nodeId, row] of this.#rows) {
      if (isKnown.has(nodeId)) continue;
      row.element.remove();
      this.#rows.delete(nodeId);
    }
    for (const line of lines) {
      const { nodeId } = line.member;
      let row = this.#rows.get(nodeId);
      if (row === undefined) {
        row = new Row(nodeId, this.#onSelect);
        this.#rows.set(nodeId, row);
      }
      row.update(line, { shared, isStale });
    }
    this.#arrange();
  }

  #header(key: string, label: string): HTMLElement {
    const sort = make('button', { class: 'sort', text: label, attributes: { type: 'button' } });
    const isWord = key === NAME || key === STATE || key === 'version' || key === 'protocol';
    sort.addEventListener('click', () => {
      const { key: before, isDescending } = this.#order;
      // Numbers are sorted with the highest first, because operators look for high values.
      this.#order = { key, isDescending: before === key ? !isDescending : !isWord };
      this.#arrange();
    });
    const header = make('th', { attributes: { scope: 'col', role: 'columnheader' } }, sort);
    this.#headers.set(key, header);
    return header;
  }

  /** Sorts the rows. Rows that are already in place are not touched, which keeps focus and selection. */
  #arrange(): void {
    const { key, isDescending } = this.#order;
    for (const [name, header] of this.#headers) {
      const direction = isDescending ? 'descending' : 'ascending';
      if (name === key) setAttribute(header, 'aria-sort', direction);
      else header.removeAttribute('aria-sort');
    }
    for (const [i, { member }] of sorted(this.#lines, this.#order).entries()) {
      const element = (this.#rows.get(member.nodeId) as Row).element;
      if (this.#body.children[i] !== element) this.#body.insertBefore(element, this.#body.children[i] ?? null);
    }
  }
}

/** The lines, sorted. Lines with an unknown figure come last in either direction. */
function sorted(lines: readonly MemberLine[], { key, isDescending }: Order): MemberLine[] {
  const sign = isDescending ? -1 : 1;
  const byName = (a: MemberLine, b: MemberLine): number => compareNames(a.member.nodeId, b.member.nodeId);
  if (key === NAME) {
    const rank = ({ member }: MemberLine): number => Number(member.state === 'left' || member.state === 'gone');
    return [...lines].sort((a, b) => rank(a) - rank(b) || sign * byName(a, b));
  }
  const stateOf = ({ member }: MemberLine): number => STATE_ORDER.indexOf(member.state);
  const figureOf = key === STATE ? stateOf : MEMBER_COLUMNS.find((column) => column.key === key)?.value;
  return [...lines].sort((a, b) => {
    const [x, y] = [figureOf?.(a) ?? null, figureOf?.(b) ?? null];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || byName(a, b);
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : compareNames(String(x), String(y));
    return sign * order || byName(a, b);
  });
}

/** Text for what all nodes have in common, instead of a column with the same value in every row. */
function sharedText({ version, protocol, fallback }: Shared): string {
  const parts = [
    ...(version === null ? [] : [`version ${version}`]),
    ...(protocol === null ? [] : [`reads over ${protocol}${fallback === '' ? '' : `, ${fallback}`}`]),
  ];
  return parts.length === 0 ? '' : `All nodes: ${parts.join('; ')}. Rates and p99 are of the last 30 s.`;
}

class Row {
  readonly element: HTMLElement;
  readonly #badges = make('span', { class: 'badges' });
  readonly #state = make('span', { class: 'state' });
  readonly #stateNote = make('span', { class: 'cell-note' });
  readonly #cells: readonly Cell[] = MEMBER_COLUMNS.map((column) => new Cell(column));
  readonly #link = make('a', { class: 'own-page', text: 'its dashboard' });

  constructor(nodeId: string, onSelect: (nodeId: string) => void) {
    const select = make('button', { class: 'node-name', attributes: { type: 'button' } }, isolated(nodeId));
    select.title = 'Show the figures of this node';
    select.addEventListener('click', () => onSelect(nodeId));
    this.#link.setAttribute('rel', 'noreferrer');
    const name = make('th', { attributes: { scope: 'row', role: 'rowheader' } }, select, this.#badges, this.#link);
    const state = { role: 'cell', 'data-label': 'State' };
    const stateCell = make('td', { class: 'state-cell', attributes: state }, this.#state, this.#stateNote);
    this.element = make('tr', { attributes: { role: 'row' } }, name, stateCell);
    this.element.append(...this.#cells.map(({ element }) => element));
    this.element.dataset.node = nodeId;
  }

  update(line: MemberLine, { shared, isStale }: { readonly shared: Shared; readonly isStale: boolean }): void {
    const { member } = line;
    const { state } = member;
    setAttribute(this.element, 'data-state', state);
    this.#showBadges(member);
    setText(this.#state, isStale && !isGone(member) ? `was ${state}` : state);
    setAttribute(this.#state, 'data-state', state);
    this.#stateNote.classList.toggle('degraded', state === 'up');
    setText(this.#stateNote, stateNote(member));
    for (const cell of this.#cells) cell.update(line, shared);
    const href = linkOf(member);
    setHidden(this.#link, href === null);
    if (href !== null) setAttribute(this.#link, 'href', href);
  }

  #showBadges(member: Member): void {
    const { isThis, report } = member;
    const texts = [
      ...(isThis ? ['this node'] : []),
      ...(!isGone(member) && report?.is_meta === true ? ['discovery head'] : []),
    ];
    if (this.#badges.dataset.texts === texts.join()) return;
    this.#badges.dataset.texts = texts.join();
    this.#badges.replaceChildren(...texts.map((text) => make('span', { class: 'badge', text })));
  }
}

/** One figure of one member. Its attribute `data-value` has the exact number, which the text may shorten. */
class Cell {
  readonly element: HTMLElement;
  readonly #column: MemberColumn;
  readonly #text = make('span', { class: 'cell-text' });
  readonly #note = make('span', { class: 'cell-note' });
  readonly #bar = make('div', { class: 'bar', attributes: { 'aria-hidden': 'true' } });
  readonly #part: HTMLElement;

  constructor(column: MemberColumn) {
    this.#column = column;
    this.#part = make('span', { class: `swatch ${column.bar ?? ''}`.trim() });
    this.#bar.append(this.#part);
    const attributes = { role: 'cell', 'data-label': column.label, 'data-column': column.key };
    this.element = make('td', { attributes }, this.#text, this.#bar, this.#note);
    if (column.bar === undefined) this.#bar.remove();
    if (column.note === undefined) this.#note.remove();
  }

  update(line: MemberLine, shared: Shared): void {
    const { value: figureOf, text, note, bar, isShown } = this.#column;
    setHidden(this.element, isShown !== undefined && !isShown(shared));
    const value = figureOf(line);
    setText(this.#text, value === null ? UNKNOWN : text(line));
    setAttribute(this.element, 'data-value', value === null ? '' : String(value));
    if (note !== undefined) setText(this.#note, note(line));
    if (bar === undefined) return;
    setHidden(this.#bar, value === null);
    setWidth(this.#part, typeof value === 'number' ? value : 0);
  }
}

function stateNote({ state, sinceMs, error, report }: Member): string {
  const since = `since ${formatMoment(sinceMs)}`;
  switch (state) {
    case 'up':
      return report?.health?.status === 'degraded' ? 'degraded' : '';
    case 'unreachable':
      return `${since}: ${error}`;
    case 'lost':
      return `${since}, without a good-bye`;
    case 'left':
      return `${since}, with a good-bye`;
    case 'gone':
      return since;
  }
}

/** Address of the node's own dashboard; null if there is none, the reader cannot reach it, or it is this page. */
function linkOf({ isThis, report, state }: Member): string | null {
  if (isThis || state !== 'up') return null;
  const controlEndpoint = String(report?.control_endpoint ?? '');
  const isTls = report?.metrics_tls === true;
  return dashboardLink(String(report?.metrics_endpoint ?? ''), { ownHost: location.hostname, controlEndpoint, isTls });
}

/** A column of the table of members, after name and state. */
interface MemberColumn {
  readonly key: string;
  readonly label: string;
  /** Value that the column is sorted by; null if unknown, which comes last in either direction. */
  readonly value: (line: MemberLine) => number | string | null;
  readonly text: (line: MemberLine) => string;
  /** Text of a smaller line below the value. */
  readonly note?: (line: MemberLine) => string;
  /** CSS class of the bar that shows the value, which is then a share. */
  readonly bar?: string;
  /** Whether the column is useful, e.g. because nodes differ in it. Without this function it always is. */
  readonly isShown?: (shared: Shared) => boolean;
}

/** A column of numbers that are shown with `format`. */
function numbers(
  key: string,
  label: string,
  value: (line: MemberLine) => number | null,
  format: (value: number) => string,
): MemberColumn {
  return { key, label, value, text: (line) => format(value(line) as number) };
}

function fills(key: 'pool' | 'disk', label: string, bar: string): MemberColumn {
  const value = (line: MemberLine): number | null => {
    const fill = line[key];
    return fill && fillShare(fill);
  };
  const sizes = ({ [key]: fill }: MemberLine): string =>
    fill === null ? '' : `${formatBytes(fill.usedBytes)} of ${formatBytes(fill.capacityBytes)}`;
  return { ...numbers(key, label, value, formatShare), note: sizes, bar };
}

/** The columns, in their order. */
export const MEMBER_COLUMNS: readonly MemberColumn[] = [
  numbers('read_p99_s', 'Read p99', ({ readP99S }) => readP99S, formatLatency),
  numbers('read_bytes_per_s', 'Read', ({ readBytesPerS }) => readBytesPerS, formatByteRate),
  numbers('written_bytes_per_s', 'Written', ({ writtenBytesPerS }) => writtenBytesPerS, formatByteRate),
  numbers('prefix_hit', 'Prefix hit', ({ prefixHit }) => prefixHit, formatShare),
  numbers('evictions_per_s', 'Evicted', ({ evictionsPerS }) => evictionsPerS, formatPageRate),
  numbers('page_lifetime_s', 'Page lifetime', ({ lifetimeS }) => lifetimeS, formatDuration),
  numbers('event_loop_p99_s', 'Loop delay p99', ({ loopP99S }) => loopP99S, formatLatency),
  fills('pool', 'Pool', 'local'),
  { ...fills('disk', 'Disk', 'disk'), isShown: ({ hasDisk }) => hasDisk },
  { ...numbers('clients', 'Clients', ({ clients }) => clients, formatCount), isShown: ({ hasClients }) => hasClients },
  numbers('rss_bytes', 'Memory', ({ rssBytes }) => rssBytes, formatBytes),
  numbers('ring_share', 'Ring share', ({ ringShare }) => ringShare, formatShare),
  {
    key: 'zone',
    label: 'Zone',
    value: ({ zone }) => zone,
    text: ({ zone }) => zone ?? '',
    isShown: ({ hasZones }) => hasZones,
  },
  {
    ...numbers('far_share', 'Read from other zones', ({ farShare }) => farShare, formatShare),
    isShown: ({ hasZones }) => hasZones,
  },
  numbers('uptime_s', 'Uptime', ({ uptimeS }) => uptimeS, formatDuration),
  {
    key: 'version',
    label: 'Version',
    value: ({ version }) => version,
    text: ({ version }) => version ?? '',
    isShown: ({ version }) => version === null,
  },
  {
    key: 'protocol',
    label: 'Reads over',
    value: ({ protocol }) => protocol,
    text: ({ protocol }) => protocol ?? '',
    note: ({ fallback }) => fallback,
    isShown: ({ protocol }) => protocol === null,
  },
];

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const ENDPOINT = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+):(\d{1,5})$/i;
/** Wildcard hosts, which stand for every address of a machine. */
const UNSPECIFIED = /^(0\.0\.0\.0|\[::\])$/;

interface Reader {
  /** Host in the address of this page in the reader's browser. */
  readonly ownHost: string;
  /** `host:port` at which nodes reach the node. Its host is used if the metrics server listens on every address. */
  readonly controlEndpoint: string;
  /** Whether the node's metrics server speaks TLS. */
  readonly isTls?: boolean;
}

/** Address of a node's own dashboard; null if the reader cannot reach it, or an endpoint is invalid. */
export function dashboardLink(metricsEndpoint: string, { ownHost, controlEndpoint, isTls }: Reader): string | null {
  const metrics = ENDPOINT.exec(metricsEndpoint);
  const control = ENDPOINT.exec(controlEndpoint);
  const host = metrics !== null && UNSPECIFIED.test(metrics[1] as string) ? control?.[1] : metrics?.[1];
  if (metrics === null || host === undefined || UNSPECIFIED.test(host) || Number(metrics[2]) > 65_535) return null;
  if (LOOPBACK.test(host) && !LOOPBACK.test(ownHost)) return null;
  return `${isTls ? 'https' : 'http'}://${host}:${metrics[2]}/`;
}
