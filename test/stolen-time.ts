const STEP_MS = 10;

/** Measures how long this process would have run and could not: what a deadline must allow beside its own time on a busy machine. */
export function watchStolenTime(): { readonly ms: number; end(): void } {
  let stolenMs = 0;
  let dueMs = performance.now() + STEP_MS;
  const timer = setInterval(() => {
    stolenMs += Math.max(0, performance.now() - dueMs);
    dueMs = performance.now() + STEP_MS;
  }, STEP_MS);
  return {
    get ms() {
      return stolenMs + Math.max(0, performance.now() - dueMs);
    },
    end: () => clearInterval(timer),
  };
}
