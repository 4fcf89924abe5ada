/** Where clients find the node of the benchmark. */
export interface Target {
  readonly clientSocket: string;
  readonly respPort: number;
  readonly respPassword: string;
  readonly metricsPort: number;
}

/** A kind of hostile client: its behaviour goes on until it fails, and is then begun again. */
export interface HostileKind {
  readonly what: string;
  readonly run: (target: Target) => Promise<unknown>;
}

/** Resolves after so many milliseconds. */
export function passed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Never resolves: the hostile client keeps what it has taken. */
export function forEver(): Promise<never> {
  // A timer keeps the process, which its parent ends.
  setInterval(() => {}, 1000);
  return new Promise(() => {});
}
