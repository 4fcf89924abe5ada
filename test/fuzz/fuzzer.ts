import type { RandomSource } from '../../src/base/environment/random.js';

/**
 * Throws `inputs` at one decoder. Each target is one file in `targets/`, listed in `registry.ts`; the machinery that
 * chooses inputs is the same for all.
 */
export interface Fuzzer {
  readonly name: string;
  /** What is fuzzed, in one line. */
  readonly what: string;
  /** `value`: the inputs are JSON with the additions of `values.ts`; they are changed as trees as well as as text. */
  readonly form: 'bytes' | 'value';
  /** Valid inputs, from which the others are made. */
  seeds(random: RandomSource): readonly Uint8Array[];
  /** Byte strings that mean something to the decoder: magics, kinds of records, names of fields. */
  readonly tokens?: readonly Uint8Array[];
  /** Default {@link INPUT_MAX_BYTES}. */
  readonly inputMaxBytes?: number;
  /** What may be allocated while an input of so many bytes is run, in one piece; without it, it is not looked at. */
  allocationMaxBytes?(inputBytes: number): number;
  /**
   * Runs one input. Throws {@link Finding}, or whatever the decoder let escape, when it does not hold what it promises.
   * Two runs of one input take the same way.
   */
  run(input: Buffer): void | Promise<void>;
  /** Gives back what `run` has taken: files, timers. */
  close?(): Promise<void>;
}

export const INPUT_MAX_BYTES = 2048;
/** An input that takes longer than this hangs, as far as a peer is concerned. */
export const RUN_MAX_MS = 1_000;

/** What an input has shown to be wrong. */
export class Finding extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'Finding';
  }
}

export function check(holds: boolean, what: string | (() => string)): asserts holds {
  if (!holds) throw new Finding(typeof what === 'string' ? what : what());
}

type ErrorClass = abstract new (...args: never[]) => Error;

/**
 * The result of `decode`; undefined when it refused the input with one of `allowed`, the only errors that it may throw.
 */
export function unlessRefused<T>(allowed: readonly ErrorClass[], decode: () => T): { readonly value: T } | undefined {
  try {
    return { value: decode() };
  } catch (error) {
    if (allowed.some((type) => error instanceof type)) return undefined;
    throw error;
  }
}

/** Like {@link unlessRefused}. */
export async function unlessRejected<T>(
  allowed: readonly ErrorClass[],
  decode: () => Promise<T>,
): Promise<{ readonly value: T } | undefined> {
  try {
    return { value: await decode() };
  } catch (error) {
    if (allowed.some((type) => error instanceof type)) return undefined;
    throw error;
  }
}

/** No input may change what all objects have. */
export function checkPrototypes(): void {
  for (const prototype of [Object.prototype, Array.prototype, Function.prototype] as const) {
    const known = KNOWN_PROPERTIES.get(prototype) as number;
    check(Reflect.ownKeys(prototype).length === known, 'a built-in prototype was changed');
  }
}

const KNOWN_PROPERTIES: ReadonlyMap<object, number> = new Map(
  [Object.prototype, Array.prototype, Function.prototype].map((prototype) => [
    prototype,
    Reflect.ownKeys(prototype).length,
  ]),
);
