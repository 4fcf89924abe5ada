import { countsOf, hitsOf, shareOf } from '../data/counts.js';
import { type Fill, fillOf, fillShare, type Point, recentOf } from '../data/history.js';
import { amount, type LooseReport } from '../data/loose.js';
import type { Member } from '../data/members.js';
import { isolated, make, setAttribute, setHidden, setText, setWidth } from './dom.js';
import { formatBytes, formatClock, formatDuration, formatShare, UNKNOWN } from './format.js';
import { dashboardLink } from './links.js';

const HIT_WINDOW_S = 30;

const COLUMNS = [
  'Node',
  'State',
  'Ring share',
  'Pool',
  'Disk',
  'Hit rate',
  'Protocol',
  'Uptime',
  'Memory',
  'Its dashboard',
] as const;

/** The table of members: one row for each node, by name. On narrow screens rows become cards; their roles stay. */
export class MembersView {
  readonly #body: HTMLElement;
  readonly #rows = new Map<string, Row>();
  readonly #onSelect: (nodeId: string) => void;

  constructor(section: HTMLElement, onSelect: (nodeId: string) => void) {
    this.#onSelect = onSelect;
    const head = make('tr', { attributes: { role: 'row' } });
    for (const name of COLUMNS) {
      head.append(make('th', { text: name, attributes: { scope: 'col', role: 'columnheader' } }));
    }
    this.#body = make('tbody', { attributes: { role: 'rowgroup' } });
    const caption = make('caption', { class: 'visually-hidden', text: 'Members of the cluster' });
    const table = make(
      'table',
      { class: 'figures members', attributes: { role: 'table' } },
      caption,
      make('thead', { attributes: { role: 'rowgroup' } }, head),
      this.#body,
    );
    const scroll = { role: 'region', tabindex: '0', 'aria-label': 'Members of the cluster' };
    section.append(make('div', { class: 'card scroll', attributes: scroll }, table));
  }

  /** Shows the members. `isStale`: the states are those of the last answer, which is some time ago. */
  update(members: readonly Member[], pointsOf: (nodeId: string) => readonly Point[], isStale: boolean): void {
    const isKnown = new Set(members.map(({ nodeId }) => nodeId));
    for (const [nodeId, row] of this.#rows) {
      if (isKnown.has(nodeId)) continue;
      row.element.remove();
      this.#rows.delete(nodeId);
    }
    for (const [i, member] of members.entries()) {
      let row = this.#rows.get(member.nodeId);
      if (row === undefined) {
        row = new Row(member.nodeId, this.#onSelect);
        this.#rows.set(member.nodeId, row);
      }
      if (this.#body.children[i] !== row.element) this.#body.insertBefore(row.element, this.#body.children[i] ?? null);
      row.update(member, member.state === 'up' ? pointsOf(member.nodeId) : [], isStale);
    }
  }
}

class Row {
  readonly element: HTMLElement;
  readonly #badges = make('span', { class: 'badges' });
  readonly #state = make('span', { class: 'state' });
  readonly #stateNote = make('span', { class: 'cell-note' });
  readonly #ring = make('span');
  readonly #pool = new FillCell('local');
  readonly #disk = new FillCell('disk');
  readonly #hits = make('span');
  readonly #protocol = make('span');
  readonly #protocolNote = make('span', { class: 'cell-note' });
  readonly #uptime = make('span');
  readonly #memory = make('span');
  readonly #link = make('a');
  readonly #noLink = make('span');

  constructor(nodeId: string, onSelect: (nodeId: string) => void) {
    const select = make('button', { class: 'node-name', attributes: { type: 'button' } }, isolated(nodeId));
    select.title = 'Show the figures of this node';
    select.addEventListener('click', () => onSelect(nodeId));
    const name = make('th', { attributes: { scope: 'row', role: 'rowheader' } }, select, this.#badges);
    this.#link.setAttribute('rel', 'noreferrer');
    const cells: readonly (readonly HTMLElement[])[] = [
      [this.#state, this.#stateNote],
      [this.#ring],
      [this.#pool.element],
      [this.#disk.element],
      [this.#hits],
      [this.#protocol, this.#protocolNote],
      [this.#uptime],
      [this.#memory],
      [this.#link, this.#noLink],
    ];
    this.element = make('tr', { attributes: { role: 'row' } }, name);
    this.element.dataset.node = nodeId;
    for (const [i, parts] of cells.entries()) {
      const attributes = { role: 'cell', 'data-label': COLUMNS[i + 1] as string };
      this.element.append(make('td', { attributes }, ...parts));
    }
  }

  update(member: Member, points: readonly Point[], isStale: boolean): void {
    const { state, report } = member;
    setAttribute(this.element, 'data-state', state);
    this.#showBadges(member);
    const stateNow = state === 'gone' ? `gone since ${formatClock(member.sinceMs)}` : state;
    setText(this.#state, isStale && state !== 'gone' ? `was ${state}` : stateNow);
    setAttribute(this.#state, 'data-state', state);
    const since = formatClock(member.sinceMs);
    this.#stateNote.classList.toggle('degraded', state === 'up');
    setText(this.#stateNote, state === 'unreachable' ? `since ${since}: ${member.error}` : healthNote(member));
    setText(this.#ring, state === 'gone' ? UNKNOWN : formatShare(member.ringShare));
    const live = state === 'up' ? report : undefined;
    this.#pool.update(live && fillOf(live.pool));
    this.#disk.update(live && fillOf(live.disk ?? undefined));
    const { counts } = recentOf(points, HIT_WINDOW_S);
    const hitRate = shareOf(hitsOf(counts), hitsOf(counts) + counts.misses);
    const sinceStart = live === undefined ? null : overallHitRate(live);
    setText(this.#hits, hitRate !== null ? formatShare(hitRate) : UNKNOWN);
    this.#hits.title = sinceStart === null ? '' : `since start ${formatShare(sinceStart)}`;
    setText(this.#protocol, live?.data_protocol ?? UNKNOWN);
    setText(this.#protocolNote, fallbackOf(live));
    setText(this.#uptime, live?.uptime_s === undefined ? UNKNOWN : formatDuration(amount(live.uptime_s)));
    setText(this.#memory, live?.rss_bytes === undefined ? UNKNOWN : formatBytes(amount(live.rss_bytes)));
    this.#showLink(member);
  }

  #showBadges({ isThis, report, state }: Member): void {
    const texts = [
      ...(isThis ? ['this node'] : []),
      ...(state !== 'gone' && report?.is_meta === true ? ['discovery head'] : []),
    ];
    if (this.#badges.dataset.texts === texts.join()) return;
    this.#badges.dataset.texts = texts.join();
    this.#badges.replaceChildren(...texts.map((text) => make('span', { class: 'badge', text })));
  }

  #showLink({ isThis, report, state }: Member): void {
    const endpoint = state === 'up' ? String(report?.metrics_endpoint ?? '') : '';
    const controlEndpoint = String(report?.control_endpoint ?? '');
    const href = isThis ? null : dashboardLink(endpoint, { ownHost: location.hostname, controlEndpoint });
    setHidden(this.#link, href === null);
    setHidden(this.#noLink, href !== null);
    if (href !== null) {
      setAttribute(this.#link, 'href', href);
      setText(this.#link, endpoint);
    } else {
      setText(this.#noLink, isThis ? 'this page' : endpoint || UNKNOWN);
    }
  }
}

/** A share with its sizes and a bar. */
class FillCell {
  readonly element = make('div', { class: 'fill' });
  readonly #share = make('span', { class: 'fill-share' });
  readonly #sizes = make('span', { class: 'cell-note' });
  readonly #bar: HTMLElement;
  readonly #part: HTMLElement;

  constructor(kind: string) {
    this.#part = make('span', { class: `swatch ${kind}` });
    this.#bar = make('div', { class: 'bar', attributes: { 'aria-hidden': 'true' } }, this.#part);
    this.element.append(this.#share, this.#bar, this.#sizes);
  }

  update(fill: Fill | undefined): void {
    const share = fill === undefined ? null : fillShare(fill);
    setText(this.#share, share === null ? UNKNOWN : formatShare(share));
    setHidden(this.#bar, share === null);
    setWidth(this.#part, share ?? 0);
    const sizes =
      fill === undefined || share === null
        ? ''
        : `${formatBytes(fill.usedBytes)} of ${formatBytes(fill.capacityBytes)}`;
    setText(this.#sizes, sizes);
  }
}

function healthNote({ state, report }: Member): string {
  return state === 'up' && report?.health?.status === 'degraded' ? 'degraded' : '';
}

function fallbackOf(report: LooseReport | undefined): string {
  const reason = report?.transport?.reason ?? '';
  return reason === '' ? '' : `instead of ${report?.transport?.wanted ?? 'another'}: ${reason}`;
}

function overallHitRate(report: LooseReport): number | null {
  const counts = countsOf(report);
  return shareOf(hitsOf(counts), hitsOf(counts) + counts.misses);
}
