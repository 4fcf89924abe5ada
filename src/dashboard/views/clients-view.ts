import { compareNames } from '../../base/names.js';
import { amount, type LooseReport, shareOf } from '../data/counts.js';
import type { Member } from '../data/members.js';
import { isolated, make, setAttribute, setHidden, setText } from './dom.js';
import { formatBytes, formatCount, formatShare, UNKNOWN } from './format.js';

/** Most rows, so that a browser can update them every second. */
export const CLIENT_LINES_MAX_COUNT = 100;

/** A process that is attached to a node. */
interface ClientLine {
  readonly nodeId: string;
  readonly name: string;
  readonly pid: number;
  readonly mode: string;
  readonly requests: number;
  readonly inFlight: number;
  /**
   * Share of its lookups that found a page or, if it makes no lookups, share of its reads that were hits; null if it
   * made neither.
   */
  readonly prefixHit: number | null;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly errors: number;
  readonly mappedBytes: number;
}

/**
 * Clients of the nodes that answer, sorted by node, name and process ID. If there are more than CLIENT_LINES_MAX_COUNT,
 * those that moved the most bytes are returned.
 */
export function clientLines(members: readonly Member[]): ClientLine[] {
  const all = members.flatMap(linesOf);
  const moved = (line: ClientLine): number => line.readBytes + line.writtenBytes;
  const busiest = all.sort((a, b) => moved(b) - moved(a)).slice(0, CLIENT_LINES_MAX_COUNT);

  return busiest.sort((a, b) => compareNames(a.nodeId, b.nodeId) || compareNames(a.name, b.name) || a.pid - b.pid);
}

/** Number of clients attached to these nodes in addition to the `lineCount` shown ones. */
export function unlistedCount(members: readonly Member[], lineCount: number): number {
  const attached = members.reduce(
    (sum, { state, report }) => sum + (state === 'up' ? amount(report?.clients?.attached) : 0),
    0,
  );
  return Math.max(0, attached - lineCount);
}

type LooseClient = NonNullable<NonNullable<LooseReport['clients']>['busiest']>[number];

function prefixHitOf({ lookups, found, hits, misses }: LooseClient): number | null {
  return amount(lookups) > 0
    ? shareOf(amount(found), amount(lookups))
    : shareOf(amount(hits), amount(hits) + amount(misses));
}

function linesOf({ nodeId, state, report }: Member): ClientLine[] {
  if (state !== 'up') return [];
  return (report?.clients?.busiest ?? []).map((client) => ({
    nodeId,
    name: String(client.name ?? ''),
    pid: amount(client.pid),
    mode: String(client.mode ?? ''),
    requests: amount(client.requests),
    inFlight: amount(client.in_flight),
    prefixHit: prefixHitOf(client),
    readBytes: amount(client.read_bytes),
    writtenBytes: amount(client.written_bytes),
    errors: amount(client.errors),
    mappedBytes: amount(client.mapped_bytes),
  }));
}

const COLUMNS = [
  'Client',
  'Node',
  'Mode',
  'Requests',
  'In flight',
  'Prefix hit',
  'Read',
  'Written',
  'Errors',
  'Mapped',
] as const;

/** The table of processes attached to the shown nodes; hidden while there are none. */
export class ClientsView {
  readonly #section: HTMLElement;
  readonly #body: HTMLElement;
  readonly #note = make('p', { class: 'note' });
  readonly #rows: Row[] = [];

  /** `section` is hidden while there are no clients; the table is appended to `list`. */
  constructor(section: HTMLElement, list: HTMLElement) {
    this.#section = section;
    const head = make('tr', { attributes: { role: 'row' } });
    for (const name of COLUMNS) {
      head.append(make('th', { text: name, attributes: { scope: 'col', role: 'columnheader' } }));
    }
    this.#body = make('tbody', { attributes: { role: 'rowgroup' } });
    const caption = make('caption', { class: 'visually-hidden', text: 'Attached processes' });
    const table = make(
      'table',
      { class: 'figures members clients', attributes: { role: 'table' } },
      caption,
      make('thead', { attributes: { role: 'rowgroup' } }, head),
      this.#body,
    );
    const scroll = { role: 'region', tabindex: '0', 'aria-label': 'Attached processes' };
    list.append(make('div', { class: 'card scroll', attributes: scroll }, table), this.#note);
  }

  /** Shows the clients of those of these nodes that answer. */
  update(members: readonly Member[]): void {
    const lines = clientLines(members);
    const unlisted = unlistedCount(members, lines.length);
    setHidden(this.#section, lines.length === 0);
    while (this.#rows.length > lines.length) this.#rows.pop()?.element.remove();
    for (const [i, line] of lines.entries()) {
      let row = this.#rows[i];
      if (row === undefined) {
        row = new Row();
        this.#rows.push(row);
        this.#body.append(row.element);
      }
      row.update(line);
    }
    setHidden(this.#note, unlisted === 0);
    setText(this.#note, `${formatCount(unlisted)} more are attached, which have moved fewer bytes.`);
  }
}

class Row {
  readonly element: HTMLElement;
  readonly #name = isolated('');
  readonly #process = make('span', { class: 'cell-note' });
  readonly #node = isolated('');
  readonly #cells: readonly HTMLElement[] = COLUMNS.slice(2).map(() => make('bdi'));

  constructor() {
    const name = make('th', { attributes: { scope: 'row', role: 'rowheader' } }, this.#name, this.#process);
    this.element = make('tr', { attributes: { role: 'row' } }, name);
    for (const [i, cell] of [this.#node, ...this.#cells].entries()) {
      const attributes = { role: 'cell', 'data-label': COLUMNS[i + 1] as string };
      this.element.append(make('td', { attributes }, cell));
    }
  }

  update(line: ClientLine): void {
    setAttribute(this.element, 'data-client', line.name);
    setText(this.#name, line.name);
    setText(this.#process, `process ${line.pid}`);
    setText(this.#node, line.nodeId);
    const texts = [
      line.mode,
      formatCount(line.requests),
      formatCount(line.inFlight),
      line.prefixHit === null ? UNKNOWN : formatShare(line.prefixHit),
      formatBytes(line.readBytes),
      formatBytes(line.writtenBytes),
      formatCount(line.errors),
      formatBytes(line.mappedBytes),
    ];
    for (const [i, text] of texts.entries()) setText(this.#cells[i] as HTMLElement, text);
  }
}
