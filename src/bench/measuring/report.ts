/** What a benchmark hands back: rows of figures, unit last in the name of each (`read_gb_per_s`). */
export interface BenchReport {
  readonly title: string;
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  /** What the figures were measured on, what was skipped and why, one sentence each. */
  readonly notes: readonly string[];
}

/** What is left out is as the benchmark has it by default. */
export interface ClusterBenchOptions {
  /** Sizes of clusters, one after the other. */
  readonly nodes?: readonly number[];
  readonly pages?: number;
  /** Of the steady state. */
  readonly seconds?: number;
  /** Kills one of three nodes instead, and looks at what fails. */
  readonly kill?: boolean;
}

export interface BenchOptions {
  /** Counted rounds of each contender, interleaved; medians are reported. */
  readonly rounds: number;
  /** Smaller work, for tests that only keep the benchmark from rotting. */
  readonly quick: boolean;
  /** Where a benchmark that needs files makes them; without it in the system's folder for temporary files. */
  readonly dir?: string;
  /** Of `cluster` only. */
  readonly cluster?: ClusterBenchOptions;
  /** Connections of strangers in a second, for the benchmark that has them. */
  readonly floodPerS?: number;
  /** Says what is going on when it takes longer than a second. */
  progress(text: string): void;
}

export type Benchmark = (options: BenchOptions) => Promise<BenchReport>;
