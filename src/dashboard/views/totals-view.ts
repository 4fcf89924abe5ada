import { amount, type LooseReport } from '../data/counts.js';
import { make, setAttribute, setText } from './dom.js';
import { formatBytes, formatCount } from './format.js';

interface Total {
  /** Field of the report with the figure, such as `reads.local`. */
  readonly metric: string;
  readonly label: string;
  readonly unit: 'pages' | 'bytes' | 'times' | 'keys';
  readonly of: (report: LooseReport) => number;
}

interface TotalGroup {
  readonly title: string;
  readonly totals: readonly Total[];
}

/** Counts since the nodes started, and what their pools, disks and directories contain. */
export const TOTAL_GROUPS: readonly TotalGroup[] = [
  {
    title: 'Reads',
    totals: [
      { metric: 'reads.local', label: 'from the own pool', unit: 'pages', of: ({ reads }) => amount(reads?.local) },
      { metric: 'reads.remote', label: 'from other nodes', unit: 'pages', of: ({ reads }) => amount(reads?.remote) },
      { metric: 'reads.disk', label: 'from the own disk', unit: 'pages', of: ({ reads }) => amount(reads?.disk) },
      {
        metric: 'reads.object',
        label: 'from the object store',
        unit: 'pages',
        of: ({ reads }) => amount(reads?.object),
      },
      { metric: 'reads.misses', label: 'missed', unit: 'pages', of: ({ reads }) => amount(reads?.misses) },
      ...(['local', 'remote', 'disk', 'object'] as const).map((source): Total => {
        const label = { local: 'own pool', remote: 'other nodes', disk: 'own disk', object: 'object store' }[source];
        return {
          metric: `read_bytes.${source}`,
          label: `bytes, ${label}`,
          unit: 'bytes',
          of: ({ read_bytes }) => amount(read_bytes?.[source]),
        };
      }),
    ],
  },
  {
    title: 'Writes and lookups',
    totals: [
      { metric: 'writes.pages', label: 'pages written', unit: 'pages', of: ({ writes }) => amount(writes?.pages) },
      { metric: 'writes.bytes', label: 'bytes written', unit: 'bytes', of: ({ writes }) => amount(writes?.bytes) },
      {
        metric: 'skipped_writes',
        label: 'writes skipped',
        unit: 'pages',
        of: ({ skipped_writes }) => amount(skipped_writes),
      },
      { metric: 'lookups.asked', label: 'looked up', unit: 'pages', of: ({ lookups }) => amount(lookups?.asked) },
      {
        metric: 'lookups.found',
        label: 'found without a gap',
        unit: 'pages',
        of: ({ lookups }) => amount(lookups?.found),
      },
      {
        metric: 'stale_reads',
        label: 'stale locations caught',
        unit: 'pages',
        of: ({ stale_reads }) => amount(stale_reads),
      },
      {
        metric: 'checksum_failures',
        label: 'wrong checksums caught',
        unit: 'pages',
        of: ({ checksum_failures }) => amount(checksum_failures),
      },
    ],
  },
  {
    title: 'Pool, disk, object store and directory',
    totals: [
      { metric: 'pool.entries', label: 'in the pool', unit: 'pages', of: ({ pool }) => amount(pool?.entries) },
      {
        metric: 'pool.evictions',
        label: 'evicted from the pool',
        unit: 'pages',
        of: ({ pool }) => amount(pool?.evictions),
      },
      { metric: 'disk.entries', label: 'on disk', unit: 'pages', of: ({ disk }) => amount(disk?.entries) },
      {
        metric: 'disk.evictions',
        label: 'evicted from disk',
        unit: 'pages',
        of: ({ disk }) => amount(disk?.evictions),
      },
      {
        metric: 'disk.write_errors',
        label: 'disk errors',
        unit: 'times',
        of: ({ disk }) => amount(disk?.write_errors),
      },
      {
        metric: 'disk.corrupt_pages',
        label: 'damaged on disk',
        unit: 'pages',
        of: ({ disk }) => amount(disk?.corrupt_pages),
      },
      {
        metric: 'object_store.sent_pages',
        label: 'sent to the object store',
        unit: 'pages',
        of: ({ object_store }) => amount(object_store?.sent_pages),
      },
      {
        metric: 'object_store.errors',
        label: 'object store errors',
        unit: 'times',
        of: ({ object_store }) => amount(object_store?.errors),
      },
      {
        metric: 'directory.keys',
        label: 'keys in the directory',
        unit: 'keys',
        of: ({ directory }) => amount(directory?.keys),
      },
    ],
  },
];

/** All counts. The attribute `data-value` has the exact number, which the text may shorten. */
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
