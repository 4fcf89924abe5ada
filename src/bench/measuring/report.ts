/** The result of a benchmark: rows of figures, with the unit last in each name (`read_gb_per_s`). */
export interface BenchReport {
  readonly title: string;
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  /** Notes of one sentence each: what the figures were measured on, what was skipped, and why. */
  readonly notes: readonly string[];
  /** What turned out to be wrong while measuring. If present, the command exits with status 1. */
  readonly failure?: string;
}

/** Options of the cluster benchmark. Each has a default. */
interface ClusterBenchOptions {
  /** Numbers of nodes. One cluster of each size is measured, one after the other. */
  readonly nodes?: readonly number[];
  readonly pages?: number;
  /** Length of the steady state in seconds. */
  readonly seconds?: number;
  /** Whether to kill one of three nodes instead, and to count the reads that fail. */
  readonly kill?: boolean;
}

/** Options of the benchmark of real engines. */
interface EngineBenchOptions {
  /** Name of the engine, which must be installed in the environment. */
  readonly engine?: string;
  /** Folder of a virtual environment with the engine. */
  readonly environment?: string;
  /** Folder of a model that the engine loads. */
  readonly model?: string;
  /** Prompts per round. */
  readonly prompts?: number;
  /** Approximate number of tokens per prompt. */
  readonly tokens?: number;
}

export interface BenchOptions {
  /** Counted rounds of each contender, interleaved; medians are reported. */
  readonly rounds: number;
  /** Whether to run a much smaller workload, for tests that only check that the benchmark works. */
  readonly quick: boolean;
  /** Folder in which a benchmark creates its files; by default the system's folder for temporary files. */
  readonly dir?: string;
  /** Numbers of threads to compare, for the benchmark `tcp`. */
  readonly threads?: readonly number[];
  readonly cluster?: ClusterBenchOptions;
  readonly engine?: EngineBenchOptions;
  /** Connections per second by unauthenticated peers, for the benchmark `auth`. */
  readonly floodPerS?: number;
  /** Kinds of hostile clients, for the benchmark `isolation`. Default: all, or a few if `quick`. */
  readonly hostile?: readonly string[];
  /** Processes that keep cores busy, for the benchmark `peers`. Default: none. */
  readonly burn?: number;
  /** Whether `peers` compares what happens when something fails instead of speeds. */
  readonly failures?: boolean;
  /** RDMA device, for the benchmark `rdma`. Default: the first one that can be used. */
  readonly device?: string;
  /** Reports what the benchmark is doing. */
  progress(text: string): void;
}

export type Benchmark = (options: BenchOptions) => Promise<BenchReport>;

/** The median; for an even number of values, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle] as number;
  return ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

/** One way to move all pages of a benchmark. */
export interface Contender {
  readonly name: string;
  /** Makes one pass over all pages; rejects if a page could not be read. */
  read(): Promise<void>;
  /** Whether the last pass moved the right bytes. */
  isRight(): boolean;
  /** Waits after each pass, untimed, for work that would disturb the next contender. */
  settle?(): Promise<void>;
}

interface RaceOptions {
  readonly rounds: number;
  /** Bytes that one pass moves. */
  readonly totalBytes: number;
  /** Wipes the destination, so that missing pages are noticed. */
  clear(): void;
  progress(round: number, contender: string): void;
}

/**
 * Runs every contender in turn, round after round. The first round is not timed; its bytes are checked. Resolves with
 * one row per contender; `ratio` is relative to the first one.
 */
export async function race(
  contenders: readonly Contender[],
  { rounds, totalBytes, clear, progress }: RaceOptions,
): Promise<BenchReport['rows'][number][]> {
  const speeds = contenders.map((): number[] => []);
  for (let round = 0; round <= rounds; round++) {
    for (const [c, contender] of inRound(contenders, round)) {
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

/**
 * Contenders of a round and their indices. Every second round goes through them backwards, so that none always comes
 * after the same one, which may leave garbage to collect or a processor asleep.
 */
export function inRound<T>(contenders: readonly T[], round: number): [index: number, contender: T][] {
  const all = [...contenders.entries()];
  return round % 2 === 0 ? all : all.reverse();
}

/** Rounds a figure for a table to three decimals. */
export function round3(value: number): number {
  return Number(value.toFixed(3));
}
