import { median } from './median.js';
import type { BenchReport } from './report.js';

/** One way to bring all pages of the other process into this one. */
export interface Contender {
  readonly name: string;
  /** Makes one pass over all pages; rejects if a page did not come. */
  read(): Promise<void>;
  /** Whether the last pass brought the right bytes. */
  isRight(): boolean;
  /** Waits after a pass, untimed, for what the next contender must not feel. */
  settle?(): Promise<void>;
}

export interface RaceOptions {
  readonly rounds: number;
  /** Bytes that one pass brings. */
  readonly totalBytes: number;
  /** Wipes the destination, so that a pass that brings nothing is noticed. */
  clear(): void;
  progress(round: number, contender: string): void;
}

/**
 * Runs every contender in turn, round after round. The first round is not timed; its bytes are checked. Returns one row
 * each; `ratio` is relative to the first contender.
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

/** Rounds a figure for a table to three decimals. */
export function round3(value: number): number {
  return Number(value.toFixed(3));
}
