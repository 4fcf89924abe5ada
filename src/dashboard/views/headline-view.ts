import { quantileOf } from '../../base/quantile.js';
import { hitsOf, readBytesOf, shareOf } from '../data/counts.js';
import { type Fill, fillShare, type Point, recentOf, totalOf } from '../data/points.js';
import { make, setText, setWidth } from './dom.js';
import {
  formatByteRate,
  formatBytes,
  formatCount,
  formatDuration,
  formatLatency,
  formatPageRate,
  formatShare,
  UNKNOWN,
} from './format.js';

/** Seconds over which rates are averaged: short, but long enough to be readable. */
const RATE_WINDOW_S = 5;

const SOURCES = [
  { name: 'local', label: 'own pool' },
  { name: 'remote', label: 'other nodes' },
  { name: 'disk', label: 'own disk' },
] as const;

interface HeadlineFigures {
  /** Points of the chosen range. */
  readonly range: readonly Point[];
  /** The range in words: `last 5 min`. */
  readonly words: string;
  /** The newest points, for rates. */
  readonly latest: readonly Point[];
  /** Shortest and longest page lifetime of these nodes in seconds; null while nothing is evicted. */
  readonly lifetimeS: { readonly least: number; readonly most: number } | null;
}

/** The most important figures: what the cache saves, then how it performs. */
export class HeadlineView {
  readonly #prefix = new Tile('Prefix hit', '', 'hero');
  readonly #saved = new Tile('Prefill saved', '', 'hero');
  readonly #read = new Tile('Read', `last ${RATE_WINDOW_S} s`);
  readonly #written = new Tile('Written', `last ${RATE_WINDOW_S} s`);
  readonly #median = new Tile('Read p50', '');
  readonly #slow = new Tile('Read p99', '');
  readonly #lifetime = new Tile('Page lifetime', 'now');
  readonly #pool = new FillTile('Pool', 'local', 'pool_fill');
  readonly #disk = new FillTile('Disk', 'disk', 'disk_fill');
  readonly #prefixBar = new Bar(['found']);
  readonly #savedBar = new Bar(SOURCES.map(({ name }) => name));
  readonly #shares = SOURCES.map(() => make('span', { class: 'legend-value' }));

  constructor(section: HTMLElement) {
    const legend = make('ul', { class: 'legend' });
    for (const [i, { name, label }] of SOURCES.entries()) {
      const swatch = make('span', { class: `swatch ${name}`, attributes: { 'aria-hidden': 'true' } });
      const text = make('span', { class: 'legend-label', text: label });
      legend.append(make('li', {}, swatch, text, this.#shares[i] as HTMLElement));
    }
    this.#prefix.element.append(this.#prefixBar.element);
    this.#saved.element.append(this.#savedBar.element, legend);
    const rates = [this.#read, this.#written, this.#median, this.#slow, this.#lifetime, this.#pool, this.#disk];
    for (const tile of [this.#prefix, this.#saved, ...rates]) section.append(tile.element);
  }

  /** Shows the figures. Figures without data are shown as unknown. */
  update({ range, words, latest, lifetimeS }: HeadlineFigures): void {
    const { counts } = totalOf(range);
    for (const tile of [this.#prefix, this.#saved, this.#median, this.#slow]) tile.setWindow(words);
    const hitRate = shareOf(counts.found, counts.asked);
    const lookups = `${formatCount(counts.found)} of ${formatCount(counts.asked)} pages looked up were there`;
    this.#prefix.show('prefix_hit_rate', hitRate, formatShare, counts.asked === 0 ? 'nothing was looked up' : lookups);
    this.#prefixBar.show([hitRate ?? 0]);
    const isKnown = range.length > 0;
    const bytes = readBytesOf(counts);
    const pages = `${formatCount(hitsOf(counts))} pages read, and not computed again`;
    this.#saved.show('prefill_saved_bytes', isKnown ? bytes : null, formatBytes, isKnown ? pages : '');
    const bySource = [counts.localBytes, counts.remoteBytes, counts.diskBytes];
    for (const [i, amount] of bySource.entries()) {
      const share = shareOf(amount, bytes);
      setText(this.#shares[i] as HTMLElement, share === null ? UNKNOWN : formatShare(share));
    }
    this.#savedBar.show(bySource.map((amount) => shareOf(amount, bytes) ?? 0));
    const format = (seconds: number): string => formatLatency(seconds, counts.readLatency.boundsS.at(-1));
    this.#median.show('read_p50_s', quantileOf(counts.readLatency, 0.5), format, 'half of the read calls are faster');
    this.#slow.show('read_p99_s', quantileOf(counts.readLatency, 0.99), format, 'one read call in a hundred is slower');
    this.#showRates(latest, lifetimeS);
    this.#pool.show(latest.at(-1)?.pool);
    this.#disk.show(latest.at(-1)?.disk);
  }

  #showRates(latest: readonly Point[], lifetimeS: HeadlineFigures['lifetimeS']): void {
    const { seconds, counts } = recentOf(latest, RATE_WINDOW_S);
    const perSecond = (value: number): number | null => shareOf(value, seconds);
    const rateText = (pages: number, format: (rate: number) => string): string =>
      latest.length === 0 ? '' : seconds === 0 ? 'measuring' : format(pages / seconds);
    const read = rateText(hitsOf(counts), formatPageRate);
    this.#read.show('read_bytes_per_s', perSecond(readBytesOf(counts)), formatByteRate, read);
    const written = rateText(counts.writes, formatPageRate);
    this.#written.show('written_bytes_per_s', perSecond(counts.writtenBytes), formatByteRate, written);
    const evicted = rateText(counts.evictions, (rate) =>
      rate === 0 ? 'nothing evicted' : `${formatPageRate(rate)} evicted`,
    );
    const spread =
      lifetimeS !== null && lifetimeS.most > 1.2 * lifetimeS.least ? `, up to ${formatDuration(lifetimeS.most)}` : '';
    this.#lifetime.show('page_lifetime_s', lifetimeS?.least ?? null, formatDuration, evicted + spread);
  }
}

/** One figure with its name, its time span, and a line below it. */
class Tile {
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

/** A horizontal bar of one or more parts. It is hidden from screen readers, as text beside it says the same. */
class Bar {
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

/** A tile that shows how full the pool or the disk is. */
class FillTile {
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
