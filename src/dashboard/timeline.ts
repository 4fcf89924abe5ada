import type { ClusterReport } from '../metrics/node-report.js';
import type { Api } from './api.js';
import { History } from './data/history.js';
import { type Past, pastOf } from './data/past.js';
import type { Point } from './data/points.js';
import { RANGES, type Range } from './data/ranges.js';
import { recall, remember } from './storage.js';

const RANGE_KEY = 'meshcache.range';
/** Milliseconds between two attempts to fetch what the nodes have kept, and between two refreshes of a long range. */
const FETCH_GAP_MS = 10_000;

/**
 * The figures over time. The shortest range begins with what the nodes have kept, and goes on with every poll; the longer ones are
 * fetched again and again.
 */
export class Timeline {
  readonly #api: Api;
  readonly #onFetched: () => void;
  readonly #live = new History();
  #range: Range;
  #past: Past | undefined;
  readonly #fetchedMs = new Map<number, number>();
  #isFetching = false;
  #isLiveBehind = true;

  /** `onFetched` is called when there is more to show. */
  constructor(api: Api, onFetched: () => void) {
    this.#api = api;
    this.#onFetched = onFetched;
    const stored = recall('sessionStorage', RANGE_KEY);
    this.#range = RANGES.find(({ minutes }) => String(minutes) === stored) ?? RANGES[0];
  }

  get range(): Range {
    return this.#range;
  }

  choose(range: Range, nowMs: number): void {
    this.#range = range;
    remember('sessionStorage', RANGE_KEY, String(range.minutes));
    this.#past = undefined;
    this.#fetchedMs.delete(range.stepS);
    void this.#fetch(nowMs);
  }

  /** Adds a report, and fetches what is missing; false for a report that was seen before. `nowMs` is the reader's clock. */
  record(report: ClusterReport, nowMs: number): boolean {
    if (this.#live.isBehind(report.time_ms)) this.#isLiveBehind = true;
    const isNew = this.#live.record(report);
    void this.#fetch(nowMs);
    return isNew;
  }

  /** Points of the chosen range, of one node or of all. */
  points(nodeId: string | null): readonly Point[] {
    if (this.#range === RANGES[0]) return this.#live.points(nodeId);
    return (nodeId === null ? this.#past?.cluster : this.#past?.nodes.get(nodeId)) ?? [];
  }

  /** The newest points, whatever range is chosen. */
  latest(nodeId: string | null): readonly Point[] {
    return this.#live.points(nodeId);
  }

  async #fetch(nowMs: number): Promise<void> {
    const stepS = this.#wantedStep(nowMs);
    if (stepS === undefined || this.#isFetching) return;
    this.#isFetching = true;
    this.#fetchedMs.set(stepS, nowMs);
    const history = await this.#api.history(stepS);
    this.#isFetching = false;
    if (history === undefined) return;
    const past = pastOf(history);
    if (stepS === RANGES[0].stepS) {
      this.#live.begin(past);
      this.#isLiveBehind = false;
    } else if (stepS === this.#range.stepS) {
      this.#past = past;
    }
    this.#onFetched();
  }

  /** The step of what is to be fetched next, if anything is. */
  #wantedStep(nowMs: number): number | undefined {
    const isDue = (stepS: number): boolean =>
      nowMs - (this.#fetchedMs.get(stepS) ?? Number.NEGATIVE_INFINITY) >= FETCH_GAP_MS;
    if (this.#isLiveBehind && isDue(RANGES[0].stepS)) return RANGES[0].stepS;
    if (this.#range !== RANGES[0] && isDue(this.#range.stepS)) return this.#range.stepS;
    return undefined;
  }
}
