import { hitsOf, quantileOf, shareOf } from '../data/counts.js';
import { fillShare, type Point, recentOf } from '../data/history.js';
import { Chart, type ChartData } from './chart.js';
import { formatByteRate, formatLatency, formatShare } from './format.js';

/** Seconds before a point over which its latency is taken: latency needs some calls to mean anything. */
const LATENCY_WINDOW_S = 10;
/** Seconds between two points above which they are not joined, as nothing is known of the time between. */
const GAP_S = 15;

const DASHED = [8, 4];
const DOTTED = [2, 3];

/** The four charts of the selected nodes. */
export class ChartsView {
  readonly #throughput = new Chart({
    title: 'Throughput',
    note: 'bytes of pages a second',
    scale: 'amount',
    format: formatByteRate,
    series: [
      { label: 'read', color: '--read' },
      { label: 'written', color: '--write', dash: DASHED },
    ],
  });
  readonly #hits = new Chart({
    title: 'Hit rate by source',
    note: 'of the pages asked for; what is missing to 100 % was a miss',
    scale: 'share',
    format: formatShare,
    isStacked: true,
    series: [
      { label: 'own pool', color: '--local' },
      { label: 'other nodes', color: '--remote', dash: DASHED },
      { label: 'own disk', color: '--disk', dash: DOTTED },
    ],
  });
  readonly #latency = new Chart({
    title: 'Read latency',
    note: `of one read call, all sources, over the ${LATENCY_WINDOW_S} s before`,
    scale: 'time',
    format: formatLatency,
    series: [
      { label: 'p50', color: '--read' },
      { label: 'p99', color: '--write', dash: DASHED },
    ],
  });
  readonly #fill = new Chart({
    title: 'Pool and disk fill',
    note: 'of their capacity',
    scale: 'share',
    format: formatShare,
    series: [
      { label: 'pool', color: '--local' },
      { label: 'disk', color: '--disk', dash: DASHED },
    ],
  });

  constructor(section: HTMLElement) {
    for (const chart of this.#all()) section.append(chart.element);
  }

  /** Updates the charts, which end at `nowMs`. */
  update(points: readonly Point[], nowMs: number): void {
    this.#throughput.update(
      columnsOf(points, nowMs, [
        ({ counts, seconds }) => (counts === null ? null : counts.readBytes / seconds),
        ({ counts, seconds }) => (counts === null ? null : counts.writtenBytes / seconds),
      ]),
    );
    this.#hits.update(
      columnsOf(points, nowMs, [
        ({ counts }) => counts && shareOf(counts.local, hitsOf(counts) + counts.misses),
        ({ counts }) => counts && shareOf(counts.remote, hitsOf(counts) + counts.misses),
        ({ counts }) => counts && shareOf(counts.disk, hitsOf(counts) + counts.misses),
      ]),
    );
    const latencies = points.map((_, i) => recentOf(points, LATENCY_WINDOW_S, i + 1).counts.readLatency);
    this.#latency.update(
      columnsOf(points, nowMs, [(_, i) => quantileOf(latencies[i]!, 0.5), (_, i) => quantileOf(latencies[i]!, 0.99)]),
    );
    this.#fill.update(columnsOf(points, nowMs, [({ pool }) => fillShare(pool), ({ disk }) => fillShare(disk)]));
  }

  redraw(): void {
    for (const chart of this.#all()) chart.redraw();
  }

  #all(): Chart[] {
    return [this.#throughput, this.#hits, this.#latency, this.#fill];
  }
}

/** One column for each of `valuesOf`, with an unknown point wherever time is missing. */
function columnsOf(
  points: readonly Point[],
  nowMs: number,
  valuesOf: readonly ((point: Point, index: number) => number | null)[],
): ChartData {
  const timesS: number[] = [];
  const columns = valuesOf.map((): (number | null)[] => []);
  for (const [i, point] of points.entries()) {
    const timeS = point.timeMs / 1000;
    const lastS = timesS.at(-1);
    if (lastS !== undefined && timeS - lastS > GAP_S) {
      timesS.push(lastS + 1);
      for (const column of columns) column.push(null);
    }
    timesS.push(timeS);
    for (const [c, read] of valuesOf.entries()) columns[c]!.push(read(point, i));
  }
  return { nowS: nowMs / 1000, timesS, columns };
}
