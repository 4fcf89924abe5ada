import { CLIENT_STEP_BYTES, CLIENT_STEP_KEY_BYTES, CLIENT_STEP_KEYS, COPY_SLICE_MAX_BYTES } from '../../base/limits.js';

/**
 * The keys of a request in the form in which they were received. They may take many MiB, so they are decoded step by
 * step.
 */
export interface StepKeys {
  readonly count: number;
  /** Encoded bytes of the keys from `start` to before `end`. */
  bytesBetween(start: number, end: number): number;
  /**
   * Throws if one of the keys from `start` to before `end` is malformed. Must take much less time than decoding them.
   */
  check(start: number, end: number): void;
  /** Decodes the keys from `start` to before `end`; throws if one of them is malformed. */
  slice(start: number, end: number): readonly string[];
}

/** The most keys, and bytes of keys, in one step. */
export interface KeyStepLimits {
  /** Default: CLIENT_STEP_KEY_BYTES. A longer key is a step of its own. */
  readonly maxBytes?: number;
  /** Default: CLIENT_STEP_KEYS. */
  readonly maxCount?: number;
}

/** Divides a sequence of keys into steps. */
export class KeyStepSize {
  readonly #maxBytes: number;
  readonly #maxCount: number;
  #bytes = 0;
  #count = 0;

  constructor({ maxBytes = CLIENT_STEP_KEY_BYTES, maxCount = CLIENT_STEP_KEYS }: KeyStepLimits = {}) {
    this.#maxBytes = maxBytes;
    this.#maxCount = maxCount;
  }

  /** Adds the next key. Returns whether it begins a new step, because the current one has no room for it. */
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

/** Splits keys into runs that are short to work on. */
export function* fewAtOnce(keys: readonly string[]): Generator<readonly string[]> {
  for (let start = 0; start < keys.length; start += CLIENT_STEP_KEYS) yield keys.slice(start, start + CLIENT_STEP_KEYS);
}

export interface KeyStepsOptions {
  /** Gives others a turn before the next step begins; undefined: nobody needs it now. */
  readonly goOn: () => Promise<void> | undefined;
  /** Steps that may wait for something at the same time. Default: 1. */
  readonly atOnce?: number;
  /** Most keys of one step. Default: CLIENT_STEP_KEYS. */
  readonly maxCount?: number;
}

/**
 * Works on the keys of a request step by step; each step returns one result per key. Resolves with the results of all
 * steps. Rejects when a step has failed and none is in progress any more. All keys are checked before the first step,
 * so a request with a malformed key has no effect.
 */
export async function inKeySteps<T>(
  keys: StepKeys,
  { goOn, atOnce = 1, maxCount = CLIENT_STEP_KEYS }: KeyStepsOptions,
  step: (keys: readonly string[], slice: Slice) => Promise<readonly T[]>,
): Promise<T[]> {
  if (keys.count === 0) return [];
  // A single step decodes its keys before it has any effect.
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

/** Runs a long piece of work, which yields at the end of each step. */
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
 * Indices of the values for which `test` is true, in order. On long lists it is twenty times as fast as `flatMap` with
 * one-element lists.
 */
export function indicesWhere<T>(values: ArrayLike<T>, test: (value: T, index: number) => boolean): number[] {
  const indices: number[] = [];
  for (let i = 0; i < values.length; i++) if (test(values[i] as T, i)) indices.push(i);
  return indices;
}

/** Which pages a call to clear removes. */
export interface Cleared {
  /** Version from which pages are kept. */
  readonly voidBelow: number;
  readonly isCleared: (key: string) => boolean;
}
