import type { LooseReport } from '../data/loose.js';
import { TOTAL_GROUPS, type Total } from '../data/totals.js';
import { make, setAttribute, setText } from './dom.js';
import { formatBytes, formatCount } from './format.js';

/** All counts, exact: `data-value` has the number that the text may shorten. */
export class TotalsView {
  readonly #cells = new Map<Total, HTMLElement>();

  constructor(section: HTMLElement) {
    for (const { title, totals } of TOTAL_GROUPS) {
      const list = make('dl');
      for (const total of totals) {
        const cell = make('dd', { attributes: { 'data-metric': total.metric } });
        this.#cells.set(total, cell);
        list.append(make('div', {}, make('dt', { text: total.label }), cell));
      }
      section.append(make('div', { class: 'card totals' }, make('h3', { text: title }), list));
    }
  }

  /** Shows the sums over these nodes. */
  update(reports: readonly LooseReport[]): void {
    for (const [total, cell] of this.#cells) {
      const sum = reports.reduce((sum, report) => sum + total.of(report), 0);
      setAttribute(cell, 'data-value', String(sum));
      setText(cell, total.unit === 'bytes' ? formatBytes(sum) : formatCount(sum));
    }
  }
}
