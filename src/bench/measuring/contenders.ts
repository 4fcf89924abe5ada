import { median } from './median.js';
import type { BenchReport } from './report.js';

/** One way to bring all pages of the other process here. */
export interface Contender {
  readonly name: string;
  /** One pass over all pages; rejects when a page did not come. */
  read(): Promise<void>;
  /** Whether the last pass has brought the right bytes. */
  isRight(): boolean;
  /** What is to be waited for after a pass, untimed, before anybody else has a turn. */
  settle?(): Promise<void>;
}

export interface RaceOptions {
  readonly rounds: number;
  /** That one pass brings. */
  readonly totalBytes: number;
  /** Wipes the destination, so that a pass that brings nothing is noticed. */
  clear(): void;
  progress(round: number, contender: string): void;
}

/**
 * Every contender in turn, round after round; the first round is not timed, in it the bytes are checked.
 * One row each; `ratio` is to the first one.
 */
export async function race(
  contenders: readonly Contender[],
  { rounds, totalBytes, clear, progress }: RaceOptions,
): Promise<BenchReport['rows'][number][]> {
  const speeds = contenders.map((): number[] => []);
  for (let round = 0; round <= rounds; round++) {
    for (const [c, contender] of contenders.entries()) {
      progress(round, contender.name);
      if (round === 0) clear();
      const startMs = performance.now();
      await contender.read();
      const elapsedMs = performance.now() - startMs;
      if (round > 0) speeds[c]?.push(totalBytes / elapsedMs / 1e6);
      else if (!contender.isRight()) throw new Error(`${contender.name}: wrong bytes`);
      await contender.settle?.();
    }
  }
  const reference = median(speeds[0] as number[]);
  return contenders.map(({ name }, c) => {
    const all = speeds[c] as number[];
    return {
      contender: name,
      gb_per_s: round3(median(all)),
      min_gb_per_s: round3(Math.min(...all)),
      max_gb_per_s: round3(Math.max(...all)),
      ratio: round3(median(all) / reference),
    };
  });
}

/** For a table. */
export function round3(value: number): number {
  return Number(value.toFixed(3));
}
