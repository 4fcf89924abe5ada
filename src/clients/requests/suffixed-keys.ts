import type { StepKeys } from '../../store/call/key-steps.js';
import type { BodyTexts } from '../wire/body-texts.js';

/** All keys of a request combined with all suffixes: the first key with each suffix, then the second key, and so on. */
export class SuffixedKeys implements StepKeys {
  readonly #keys: BodyTexts;
  readonly #suffixes: BodyTexts;

  /** There must be at least one suffix, and the suffixes must have been checked already. */
  constructor(keys: BodyTexts, suffixes: BodyTexts) {
    this.#keys = keys;
    this.#suffixes = suffixes;
  }

  get count(): number {
    return this.#keys.count * this.#suffixes.count;
  }

  bytesBetween(start: number, end: number): number {
    return this.#bytesBefore(end) - this.#bytesBefore(start);
  }

  check(start: number, end: number): void {
    const { count } = this.#suffixes;
    this.#keys.check(Math.floor(start / count), Math.ceil(end / count));
  }

  slice(start: number, end: number): string[] {
    const { count } = this.#suffixes;
    const firstKey = Math.floor(start / count);
    const keys = this.#keys.slice(firstKey, Math.ceil(end / count));
    const suffixes = new Array<string>(count);
    for (const [from, to] of this.#suffixRuns(start, end)) {
      for (const [i, suffix] of this.#suffixes.slice(from, to).entries()) suffixes[from + i] = suffix;
    }
    return Array.from({ length: end - start }, (_, i) => {
      const index = start + i;
      return `${keys[Math.floor(index / count) - firstKey]}${suffixes[index % count]}`;
    });
  }

  /** Total bytes of the first `index` combined keys. */
  #bytesBefore(index: number): number {
    const { count } = this.#suffixes;
    const [whole, rest] = [Math.floor(index / count), index % count];
    const ofWhole = count * this.#keys.bytesBetween(0, whole) + whole * this.#suffixes.bytesBetween(0, count);
    if (rest === 0) return ofWhole;
    return ofWhole + rest * this.#keys.bytesBetween(whole, whole + 1) + this.#suffixes.bytesBetween(0, rest);
  }

  /** Returns the suffixes that these keys need, as at most two runs. */
  #suffixRuns(start: number, end: number): [from: number, to: number][] {
    const { count } = this.#suffixes;
    if (end - start >= count) return [[0, count]];
    const [from, to] = [start % count, end % count];
    if (from < to || to === 0) return [[from, to === 0 && end > start ? count : to]];
    return [
      [from, count],
      [0, to],
    ];
  }
}
