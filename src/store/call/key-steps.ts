import { CLIENT_STEP_BYTES, CLIENT_STEP_KEY_BYTES, CLIENT_STEP_KEYS, COPY_SLICE_MAX_BYTES } from '../../base/limits.js';

/**
 * The keys of a request as they were received. A request may have many MiB of them, so they are made for one step after
 * the other.
 */
export interface StepKeys {
  readonly count: number;
  /** Bytes of which the keys from `start` to before `end` are made. */
  bytesBetween(start: number, end: number): number;
  /**
   * Throws if one of the keys from `start` to before `end` is malformed. It must take much less time than making them.
   */
  check(start: number, end: number): void;
  /** Makes the keys from `start` to before `end`; throws if one of them is malformed. */
  slice(start: number, end: number): readonly string[];
}

/** How many keys, and bytes of keys, a step has at most. */
export interface KeyStepLimits {
  /** Default: CLIENT_STEP_KEY_BYTES. A longer key is a step of its own. */
  readonly maxBytes?: number;
  /** Default: CLIENT_STEP_KEYS. */
  readonly maxCount?: number;
}

/** Divides keys into steps, one key after the other. */
export class KeyStepSize {
  readonly #maxBytes: number;
  readonly #maxCount: number;
  #bytes = 0;
  #count = 0;

  constructor({ maxBytes = CLIENT_STEP_KEY_BYTES, maxCount = CLIENT_STEP_KEYS }: KeyStepLimits = {}) {
    this.#maxBytes = maxBytes;
    this.#maxCount = maxCount;
  }

  /** Adds the next key. Returns whether a further step begins with it, as the one before has no room for it. */
  add(bytes: number): boolean {
    const isNext = this.#count === this.#maxCount || (this.#count > 0 && this.#bytes + bytes > this.#maxBytes);
    this.#bytes = isNext ? bytes : this.#bytes + bytes;
    this.#count = isNext ? 1 : this.#count + 1;
    return isNext;
  }
}

/** Splits the keys of a request into runs that are short to work on. */
export function* keySteps(
  keys: Pick<StepKeys, 'count' | 'bytesBetween'>,
  { maxBytes = CLIENT_STEP_KEY_BYTES, maxCount = CLIENT_STEP_KEYS }: KeyStepLimits = {},
): Generator<Slice> {
  for (let start = 0; start < keys.count; ) {
    const end = endOfStep(keys, start, { maxBytes, maxCount });
    yield { start, end };
    start = end;
  }
}

function endOfStep(
  keys: Pick<StepKeys, 'count' | 'bytesBetween'>,
  start: number,
  { maxBytes, maxCount }: Required<KeyStepLimits>,
): number {
  let tooFar = Math.min(keys.count, start + maxCount);
  if (keys.bytesBetween(start, tooFar) <= maxBytes) return tooFar;
  let end = start + 1;
  while (end + 1 < tooFar) {
    const middle = (end + tooFar) >>> 1;
    if (keys.bytesBetween(start, middle) <= maxBytes) end = middle;
    else tooFar = middle;
  }
  return end;
}

/** The keys in parts that are short to work on. */
export function* fewAtOnce(keys: readonly string[]): Generator<readonly string[]> {
  for (let start = 0; start < keys.length; start += CLIENT_STEP_KEYS) yield keys.slice(start, start + CLIENT_STEP_KEYS);
}

export interface KeyStepsOptions {
  /** Lets others have their turn before a further step begins; undefined: nobody needs it now. */
  readonly goOn: () => Promise<void> | undefined;
  /** Steps that may be under way at once, as far as they wait for something. Default: 1. */
  readonly atOnce?: number;
  /** Keys of a step at most. Default: CLIENT_STEP_KEYS. */
  readonly maxCount?: number;
}

/**
 * Works on the keys of a request step by step. Resolves with the results of all steps, each of which has one for each
 * of its keys. Rejects when a step has failed and none is under way any more. All keys are checked before the first
 * step: nothing is done of a request with a malformed one.
 */
export async function inKeySteps<T>(
  keys: StepKeys,
  { goOn, atOnce = 1, maxCount = CLIENT_STEP_KEYS }: KeyStepsOptions,
  step: (keys: readonly string[], slice: Slice) => Promise<readonly T[]>,
): Promise<T[]> {
  if (keys.count === 0) return [];
  // A single step makes its keys before it has an effect.
  if (keys.count <= maxCount && keys.bytesBetween(0, keys.count) <= CLIENT_STEP_KEY_BYTES) {
    return (await step(keys.slice(0, keys.count), { start: 0, end: keys.count })).slice();
  }
  await checked(keys, goOn);
  const results = new Array<T>(keys.count);
  const steps: Promise<void>[] = [];
  try {
    for (const slice of keySteps(keys, { maxCount })) {
      await goOn();
      if (steps.length >= atOnce) await steps[steps.length - atOnce];
      const begun = step(keys.slice(slice.start, slice.end), slice).then((ofStep) => {
        for (let i = 0; i < ofStep.length; i++) results[slice.start + i] = ofStep[i] as T;
      });
      // A failure is passed on below.
      begun.catch(() => {});
      steps.push(begun);
    }
    await Promise.all(steps);
    return results;
  } finally {
    await Promise.allSettled(steps);
  }
}

/** Takes the steps of a longer work, which says itself where one ends. */
export function inTurns<T>(steps: Generator<void, T>, goOn: KeyStepsOptions['goOn']): T | Promise<T> {
  const first = steps.next();
  return first.done === true ? first.value : restInTurns(steps, goOn);
}

async function restInTurns<T>(steps: Generator<void, T>, goOn: KeyStepsOptions['goOn']): Promise<T> {
  for (;;) {
    await goOn();
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

async function checked(keys: StepKeys, goOn: KeyStepsOptions['goOn']): Promise<void> {
  const limits = { maxBytes: CLIENT_STEP_BYTES, maxCount: Number.POSITIVE_INFINITY };
  for (const { start, end } of keySteps(keys, limits)) {
    keys.check(start, end);
    if (end < keys.count) await goOn();
  }
}

/** A run of the pages of a call; `end` is excluded. */
export interface Slice {
  readonly start: number;
  readonly end: number;
}

/** Splits pages into runs of at most `maxCount` pages and `maxBytes`; a larger page is a run of its own. */
export function* slicesOf(
  pages: readonly { readonly length: number }[],
  { maxBytes = COPY_SLICE_MAX_BYTES, maxCount = Number.POSITIVE_INFINITY } = {},
): Generator<Slice> {
  let start = 0;
  let bytes = 0;
  for (let end = 0; end < pages.length; end++) {
    const length = (pages[end] as { readonly length: number }).length;
    if (end > start && (bytes + length > maxBytes || end - start === maxCount)) {
      yield { start, end };
      start = end;
      bytes = 0;
    }
    bytes += length;
  }
  if (start < pages.length) yield { start, end: pages.length };
}

/**
 * Indices of the values for which `test` is true, in their order. On long lists it is twenty times as fast as `flatMap`
 * with lists of one.
 */
export function indicesWhere<T>(values: ArrayLike<T>, test: (value: T, index: number) => boolean): number[] {
  const indices: number[] = [];
  for (let i = 0; i < values.length; i++) if (test(values[i] as T, i)) indices.push(i);
  return indices;
}

/** Which pages a call to clear removes. */
export interface Cleared {
  /** Version from which on pages stay. */
  readonly voidBelow: number;
  readonly isCleared: (key: string) => boolean;
}
