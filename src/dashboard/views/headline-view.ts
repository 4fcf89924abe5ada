import { hitsOf, quantileOf, shareOf } from '../data/counts.js';
import { type Fill, fillShare, type Point, recentOf } from '../data/history.js';
import { make, setText, setWidth } from './dom.js';
import {
  formatByteRate,
  formatBytes,
  formatCount,
  formatLatency,
  formatNumber,
  formatShare,
  UNKNOWN,
} from './format.js';

/** Seconds over which rates are taken: few, but enough to read them. Shares and latencies need more to mean something. */
const RATE_WINDOW_S = 5;
const SHARE_WINDOW_S = 30;

const SOURCES = [
  { name: 'local', label: 'own pool' },
  { name: 'remote', label: 'other nodes' },
  { name: 'disk', label: 'own disk' },
  { name: 'misses', label: 'missed' },
] as const;

/** The current figures. */
export class HeadlineView {
  readonly #read = new Tile('Read', `last ${RATE_WINDOW_S} s`);
  readonly #written = new Tile('Written', `last ${RATE_WINDOW_S} s`);
  readonly #hits = new Tile('Pages hit', `last ${SHARE_WINDOW_S} s`, 'wide');
  readonly #prefix = new Tile('Prefix hit', `last ${SHARE_WINDOW_S} s`);
  readonly #latency = new Tile('Read latency', `last ${SHARE_WINDOW_S} s`);
  readonly #slowest = new Tile('Slow reads', `last ${SHARE_WINDOW_S} s`);
  readonly #pool = new Tile('Pool', 'now');
  readonly #disk = new Tile('Disk', 'now');
  readonly #directory = new Tile('Directory', 'now');
  readonly #hitBar = new Bar(SOURCES.map(({ name }) => name));
  readonly #poolBar = new Bar(['local']);
  readonly #diskBar = new Bar(['disk']);
  readonly #shares = SOURCES.map(() => make('span', { class: 'legend-value' }));

  constructor(section: HTMLElement) {
    const legend = make('ul', { class: 'legend' });
    for (const [i, { name, label }] of SOURCES.entries()) {
      const swatch = make('span', { class: `swatch ${name}`, attributes: { 'aria-hidden': 'true' } });
      legend.append(
        make('li', {}, swatch, make('span', { class: 'legend-label', text: label }), this.#shares[i] as HTMLElement),
      );
    }
    this.#hits.element.append(this.#hitBar.element, legend);
    this.#pool.element.append(this.#poolBar.element);
    this.#disk.element.append(this.#diskBar.element);
    for (const tile of [
      this.#read,
      this.#written,
      this.#latency,
      this.#slowest,
      this.#hits,
      this.#prefix,
      this.#pool,
      this.#disk,
      this.#directory,
    ]) {
      section.append(tile.element);
    }
  }

  /**
   * Shows the figures of these points; without points they are unknown. `keys` is the number of directory entries of
   * the same nodes.
   */
  update(points: readonly Point[], keys: number): void {
    this.#showRates(points);
    const { counts } = recentOf(points, SHARE_WINDOW_S);
    const asked = hitsOf(counts) + counts.misses;
    const hitRate = shareOf(hitsOf(counts), asked);
    this.#hits.show('hit_rate', hitRate, formatShare, asked === 0 ? 'nothing was read' : `${formatCount(asked)} pages`);
    for (const [i, { name }] of SOURCES.entries()) {
      const share = shareOf(counts[name], asked);
      setText(this.#shares[i] as HTMLElement, share === null ? UNKNOWN : formatShare(share));
    }
    this.#hitBar.show(SOURCES.map(({ name }) => shareOf(counts[name], asked) ?? 0));
    const lookups = `${formatCount(counts.found)} of ${formatCount(counts.asked)} pages looked up`;
    this.#prefix.show(
      'prefix_hit_rate',
      shareOf(counts.found, counts.asked),
      formatShare,
      counts.asked === 0 ? 'nothing was looked up' : lookups,
    );
    const [p50, p99] = [quantileOf(counts.readLatency, 0.5), quantileOf(counts.readLatency, 0.99)];
    const format = (seconds: number): string => formatLatency(seconds, counts.readLatency.boundsS.at(-1));
    this.#latency.show('read_p50_s', p50, format, 'half of the calls (p50)');
    this.#slowest.show('read_p99_s', p99, format, 'all but one in a hundred (p99)');
    this.#directory.show('directory_keys', points.length > 0 ? keys : null, formatCount, 'keys');
    showFill(this.#pool, this.#poolBar, points.at(-1)?.pool, 'pool_fill');
    showFill(this.#disk, this.#diskBar, points.at(-1)?.disk, 'disk_fill');
  }

  #showRates(points: readonly Point[]): void {
    const { seconds, counts } = recentOf(points, RATE_WINDOW_S);
    const perSecond = (value: number): number | null => shareOf(value, seconds);
    const pagesText = (pages: number): string =>
      seconds === 0 ? 'measuring' : `${formatNumber(pages / seconds)} pages/s`;
    const isKnown = points.length > 0;
    this.#read.show(
      'read_bytes_per_s',
      perSecond(counts.readBytes),
      formatByteRate,
      isKnown ? pagesText(hitsOf(counts)) : '',
    );
    this.#written.show(
      'written_bytes_per_s',
      perSecond(counts.writtenBytes),
      formatByteRate,
      isKnown ? pagesText(counts.writes) : '',
    );
  }
}

/** One figure with its name, its time span, and a line below it. */
class Tile {
  readonly element: HTMLElement;
  readonly #value = make('p', { class: 'value' });
  readonly #below = make('p', { class: 'below' });

  constructor(title: string, window: string, kind = '') {
    const heading = make('h3', { text: title });
    const note = make('span', { class: 'note', text: window });
    const head = make('div', { class: 'tile-head' }, heading, note);
    this.element = make('div', { class: `card tile ${kind}`.trim() }, head, this.#value, this.#below);
  }

  show(metric: string, value: number | null, format: (value: number) => string, below: string): void {
    this.#value.dataset.metric = metric;
    this.#value.dataset.value = value === null ? '' : String(value);
    setText(this.#value, value === null ? UNKNOWN : format(value));
    setText(this.#below, below);
  }
}

/** A bar of parts of one line; the text beside it says the same in words. */
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

function showFill(tile: Tile, bar: Bar, fill: Fill | undefined, metric: string): void {
  const share = fill === undefined ? null : fillShare(fill);
  const sizes = fill === undefined ? '' : `${formatBytes(fill.usedBytes)} of ${formatBytes(fill.capacityBytes)}`;
  tile.show(metric, share, formatShare, fill !== undefined && share === null ? 'there is none' : sizes);
  bar.show([share ?? 0]);
  bar.element.hidden = share === null;
}
