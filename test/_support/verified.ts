/** An object that can check its own state; see `base/assert.ts`. */
export interface Verifiable {
  verify(): void;
}

/** Lets each object verify itself and then, whatever the result, ends them. */
export async function verifiedEnd(ones: readonly Verifiable[], end: () => unknown): Promise<void> {
  try {
    for (const one of ones) one.verify();
  } finally {
    await end();
  }
}
