import type { ExecutionContext } from 'ava';
import { InvariantError } from '../../src/base/errors.js';
import type { Verifiable } from './verified.js';

/** Which calls of a method are lost, and what they return. */
export interface Loss {
  /** Default: all. */
  readonly when?: (self: unknown, args: readonly unknown[]) => boolean;
  readonly result?: unknown;
}

/** From now on calls of a method do nothing, as if a line of ours were missing. Returns what ends that. */
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

/** The same while `work` runs, which does not wait for anything. */
export function losing<T>(owner: object, method: string, work: () => T, loss: Loss = {}): T {
  const end = lose(owner, method, loss);
  try {
    return work();
  } finally {
    end();
  }
}

/** Nothing is wrong with `whole` until `plant` has run; then it says what is. */
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

/** `whole` has each of its parts verify itself. Not while other tests run. */
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
