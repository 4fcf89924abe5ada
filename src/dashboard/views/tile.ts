import { type Fill, fillShare } from '../data/points.js';
import { make, setText, setWidth } from './dom.js';
import { formatBytes, formatShare, UNKNOWN } from './format.js';

/** One figure with its name, its time span, and a line below it. */
export class Tile {
  readonly element: HTMLElement;
  readonly #value = make('p', { class: 'value' });
  readonly #below = make('p', { class: 'below' });
  readonly #window: HTMLElement;

  constructor(title: string, window: string, kind = '') {
    const heading = make('h3', { text: title });
    this.#window = make('span', { class: 'note', text: window });
    const head = make('div', { class: 'tile-head' }, heading, this.#window);
    this.element = make('div', { class: `card tile ${kind}`.trim() }, head, this.#value, this.#below);
  }

  setWindow(window: string): void {
    setText(this.#window, window);
  }

  show(metric: string, value: number | null, format: (value: number) => string, below: string): void {
    this.#value.dataset.metric = metric;
    this.#value.dataset.value = value === null ? '' : String(value);
    setText(this.#value, value === null ? UNKNOWN : format(value));
    setText(this.#below, below);
  }
}

/** A bar of parts of one line; the text beside it says the same in words. */
export class Bar {
  readonly element = make('div', { class: 'bar', attributes: { 'aria-hidden': 'true' } });
  readonly #parts: readonly HTMLElement[];

  constructor(kinds: readonly string[]) {
    this.#parts = kinds.map((kind) => make('span', { class: `swatch ${kind}` }));
    this.element.append(...this.#parts);
  }

  show(shares: readonly number[]): void {
    for (const [i, share] of shares.entries()) setWidth(this.#parts[i] as HTMLElement, share);
  }
}

/** A tile with how full the pool or the disk is. */
export class FillTile {
  readonly #tile: Tile;
  readonly #bar: Bar;
  readonly #metric: string;

  constructor(title: string, kind: string, metric: string) {
    this.#tile = new Tile(title, 'now');
    this.#bar = new Bar([kind]);
    this.#metric = metric;
    this.#tile.element.append(this.#bar.element);
  }

  get element(): HTMLElement {
    return this.#tile.element;
  }

  show(fill: Fill | undefined): void {
    const share = fill === undefined ? null : fillShare(fill);
    const sizes = fill === undefined ? '' : `${formatBytes(fill.usedBytes)} of ${formatBytes(fill.capacityBytes)}`;
    this.#tile.show(this.#metric, share, formatShare, fill !== undefined && share === null ? 'there is none' : sizes);
    this.#bar.show([share ?? 0]);
    this.#bar.element.hidden = share === null;
  }
}
