import type { ExecutionContext } from 'ava';
import { InvariantError } from '../../src/base/errors.js';
import type { Verifiable } from './verified.js';

/** Calls of a method that are lost, and their result. */
export interface Loss {
  /** Chooses the lost calls; default: all. */
  readonly when?: (self: unknown, args: readonly unknown[]) => boolean;
  readonly result?: unknown;
}

/** Makes calls of a method do nothing, as if a line of the program were missing. The result ends that. */
export function lose(owner: object, method: string, { when = () => true, result }: Loss = {}): () => void {
  const methods = owner as Record<string, (...args: unknown[]) => unknown>;
  const original = methods[method] as (...args: unknown[]) => unknown;
  methods[method] = function (this: unknown, ...args) {
    return when(this, args) ? result : original.apply(this, args);
  };
  return () => {
    methods[method] = original;
  };
}

/** Loses calls while `work` runs, which must be synchronous. */
export function losing<T>(owner: object, method: string, work: () => T, loss: Loss = {}): T {
  const end = lose(owner, method, loss);
  try {
    return work();
  } finally {
    end();
  }
}

/** Asserts that `whole` verifies until `plant` has run, and then reports the fault. */
export async function assertFound(
  t: ExecutionContext,
  whole: Verifiable,
  message: RegExp,
  plant: () => unknown,
): Promise<void> {
  t.notThrows(() => whole.verify(), 'before');
  await plant();
  t.throws(() => whole.verify(), { instanceOf: InvariantError, message });
}

/** Asserts that `whole` lets each of its parts verify itself. No other tests may run meanwhile. */
export function assertAsks(
  t: ExecutionContext,
  whole: Verifiable,
  parts: readonly { readonly name: string; readonly prototype: object }[],
): void {
  t.notThrows(() => whole.verify());
  for (const { name, prototype } of parts) {
    const verifiable = prototype as Verifiable;
    const { verify } = verifiable;
    verifiable.verify = () => {
      throw new InvariantError(`planted in ${name}`);
    };
    try {
      t.throws(() => whole.verify(), { instanceOf: InvariantError, message: `planted in ${name}` });
    } finally {
      verifiable.verify = verify;
    }
  }
}
