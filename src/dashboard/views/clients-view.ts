import { type ClientLine, clientLines, unlistedCount } from '../data/clients.js';
import type { Member } from '../data/members.js';
import { isolated, make, setAttribute, setHidden, setText } from './dom.js';
import { formatBytes, formatCount, formatShare, UNKNOWN } from './format.js';

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

/** The table of processes that are attached to the shown nodes; hidden while there are none. */
export class ClientsView {
  readonly #section: HTMLElement;
  readonly #body: HTMLElement;
  readonly #note = make('p', { class: 'note' });
  readonly #rows: Row[] = [];

  /** `section` is hidden when there are no clients, `list` is where the table goes. */
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

  /** Shows the clients of these nodes, as far as the nodes answer. */
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
