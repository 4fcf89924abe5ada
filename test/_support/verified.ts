/** What can check its own state; see `base/assert.ts`. */
export interface Verifiable {
  verify(): void;
}

/** Has each verify itself, and then, whatever that has found, ends them. */
export async function verifiedEnd(ones: readonly Verifiable[], end: () => unknown): Promise<void> {
  try {
    for (const one of ones) one.verify();
  } finally {
    await end();
  }
}
