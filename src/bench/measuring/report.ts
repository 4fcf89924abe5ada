/** The result of a benchmark: rows of figures, with the unit last in each name (`read_gb_per_s`). */
export interface BenchReport {
  readonly title: string;
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  /** Notes of one sentence each: what the figures were measured on, what was skipped, and why. */
  readonly notes: readonly string[];
  /** What was found to be wrong while measuring: the command then ends with status 1. */
  readonly failure?: string;
}

/** Options of the cluster benchmark. It has a default for each. */
export interface ClusterBenchOptions {
  /** Numbers of nodes; each makes a cluster, one after the other. */
  readonly nodes?: readonly number[];
  readonly pages?: number;
  /** Seconds of the steady state. */
  readonly seconds?: number;
  /** Whether to kill one of three nodes instead, and to count the reads that fail. */
  readonly kill?: boolean;
}

/** Options of the benchmark of real engines. */
export interface EngineBenchOptions {
  /** The engine; it must be in the environment. */
  readonly engine?: string;
  /** Folder of a virtual environment with the engine. */
  readonly environment?: string;
  /** Folder of a model that the engine loads. */
  readonly model?: string;
  /** Prompts of a round. */
  readonly prompts?: number;
  /** Tokens of a prompt, about. */
  readonly tokens?: number;
}

export interface BenchOptions {
  /** Counted rounds of each contender, interleaved; medians are reported. */
  readonly rounds: number;
  /** Smaller work, for tests that only keep the benchmark from rotting. */
  readonly quick: boolean;
  /** Folder in which a benchmark creates its files; by default the system's folder for temporary files. */
  readonly dir?: string;
  /** Options of the benchmark `cluster`. */
  readonly cluster?: ClusterBenchOptions;
  /** Options of the benchmark `engine`. */
  readonly engine?: EngineBenchOptions;
  /** Connections that unauthenticated peers open each second, for the benchmark `auth`. */
  readonly floodPerS?: number;
  /** Kinds of hostile clients, for the benchmark `isolation`; by default all. */
  readonly hostile?: readonly string[];
  /** Reports what is going on when the work takes longer than a second. */
  progress(text: string): void;
}

export type Benchmark = (options: BenchOptions) => Promise<BenchReport>;
