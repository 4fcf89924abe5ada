/** Source of randomness; a simulator or a test supplies a seeded one. */
export interface RandomSource {
  /** Returns `count` random bytes, which then belong to the caller. */
  bytes(count: number): Uint8Array;
  /** Returns a whole number, uniform in [0, 2^32). */
  u32(): number;
}

/**
 * Reproducible generator (SplitMix32 by its published constants) for workloads and tests.
 * It must not be used for anything that has to be hard to guess.
 */
export function seededRandom(seed: number): RandomSource {
  let state = seed >>> 0;
  const u32 = (): number => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
  return {
    u32,
    bytes(count) {
      const out = new Uint8Array(count);
      for (let i = 0; i < count; i++) out[i] = u32() & 0xff;
      return out;
    },
  };
}

/** The items in an order that the generator draws (Fisher and Yates). */
export function shuffled<T>(items: readonly T[], random: RandomSource): T[] {
  const order = [...items];
  for (let i = order.length - 1; i > 0; i--) {
    const j = random.u32() % (i + 1);
    [order[i], order[j]] = [order[j] as T, order[i] as T];
  }
  return order;
}
