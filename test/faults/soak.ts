import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import type { FaultCluster } from './cluster.js';
import type { Sample, Violation } from './protocol.js';

const INTERVAL_MS = 10_000;
/** Of a process's time: caches fill, code is compiled. */
const WARM_UP_FRACTION = 0.25;
/** Fewer samples of one process say nothing. */
const SAMPLES_MIN_COUNT = 12;

/** How much more the last third of a process's samples may show than the first after its warm-up, in the median. */
const GROWTH_MAX: Readonly<Record<keyof Sample, { readonly factor: number; readonly plus: number }>> = {
  rssBytes: { factor: 1.1, plus: 8 * 2 ** 20 },
  heapBytes: { factor: 1.25, plus: 8 * 2 ** 20 },
  descriptors: { factor: 1.1, plus: 6 },
  timers: { factor: 1.2, plus: 10 },
  connections: { factor: 1.2, plus: 20 },
  directoryKeys: { factor: 1.2, plus: 200 },
};

export interface Growth {
  readonly node: number;
  readonly pid: number;
  readonly samples: number;
  readonly before: Sample;
  readonly after: Sample;
}

/** Samples what each process takes, while faults happen to it. */
export class SoakSamples {
  readonly #folder: string;
  readonly #byProcess = new Map<number, { readonly node: number; readonly samples: Sample[] }>();
  #dueMs = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async take(cluster: FaultCluster, elapsedMs: number): Promise<void> {
    if (elapsedMs < this.#dueMs) return;
    this.#dueMs = elapsedMs + INTERVAL_MS;
    for (const process of cluster.running()) {
      if (process.isStopped) continue;
      const sample = await process.ask<Sample>({ what: 'sample' }, 1_000).catch(() => undefined);
      if (sample === undefined) continue;
      const { node, pid } = process;
      const taken = this.#byProcess.get(pid) ?? { node, samples: [] };
      taken.samples.push(sample);
      this.#byProcess.set(pid, taken);
      const line = JSON.stringify({ s: Math.round(elapsedMs / 1000), node, pid, ...sample });
      appendFileSync(join(this.#folder, 'samples.jsonl'), `${line}\n`);
    }
  }

  /** Of the processes that lived long enough. */
  growths(): Growth[] {
    return [...this.#byProcess].flatMap(([pid, { node, samples }]) => {
      const warm = samples.slice(Math.floor(samples.length * WARM_UP_FRACTION));
      const third = Math.floor(warm.length / 3);
      if (warm.length < SAMPLES_MIN_COUNT) return [];
      return [
        { node, pid, samples: warm.length, before: medians(warm.slice(0, third)), after: medians(warm.slice(-third)) },
      ];
    });
  }

  violations(): Violation[] {
    return this.growths().flatMap(({ node, before, after }) =>
      (Object.keys(GROWTH_MAX) as (keyof Sample)[])
        .filter((name) => after[name] > before[name] * GROWTH_MAX[name].factor + GROWTH_MAX[name].plus)
        .map((name) => ({ kind: 'growth' as const, node, detail: `${name}: from ${before[name]} to ${after[name]}` })),
    );
  }
}

function medians(samples: readonly Sample[]): Sample {
  const names = Object.keys(GROWTH_MAX) as (keyof Sample)[];
  return Object.fromEntries(
    names.map((name) => {
      const sorted = samples.map((sample) => sample[name]).sort((a, b) => a - b);
      return [name, sorted[Math.floor(sorted.length / 2)] ?? 0];
    }),
  ) as unknown as Sample;
}
