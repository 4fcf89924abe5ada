import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdtempSync, readdirSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const HELM = 'build/kubernetes/bin/helm';
/** The date that npm gives to the files of a package. */
const DATE = new Date('1985-10-26T08:15:00Z');

/** Packs a chart as `file`: the same bytes each time, although Helm takes over when its files were written. */
export function packChart(chart: string, file: string): void {
  const work = mkdtempSync(join(tmpdir(), 'meshcache-chart-'));
  try {
    const copy = join(work, 'chart');
    cpSync(chart, copy, { recursive: true });
    for (const each of readdirSync(copy, { recursive: true, encoding: 'utf8' }))
      utimesSync(join(copy, each), DATE, DATE);
    // A folder of its own: Helm chooses the name of the file.
    const packed = join(work, 'packed');
    execFileSync(HELM, ['package', copy, '--destination', packed]);
    for (const each of readdirSync(packed)) copyFileSync(join(packed, each), file);
  } finally {
    rmSync(work, { recursive: true });
  }
}
