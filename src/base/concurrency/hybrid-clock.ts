import { assert } from '../assert.js';
import type { Clock } from '../environment/clock.js';
import { CLOCK_AHEAD_MAX_MS, EXPIRY_MAX_MS, VERSION_AHEAD_MAX_MS } from '../limits.js';

const VERSIONS_PER_MS = 2048;
/**
 * Distance between consecutive versions of one node within an instant, so that nodes mostly give out different versions
 * in the same instant or after seeing the same version. A longer distance would make the versions of busy nodes run
 * further ahead of the present.
 */
const OWN_STEP = 32;
/** A distance of versions, a second: clocks that are further apart are not in step. */
export const CLOCKS_APART = 1000 * VERSIONS_PER_MS;
/**
 * The largest version that is accepted: far beyond honest clocks, and far enough below 2^53 that later versions are
 * exact numbers.
 */
const VERSION_MAX = 2 ** 53 - 2 ** 45;
/**
 * Tolerance above the limit for versions from the future: the dates of nodes differ a little, and no node may refuse a
 * version that another one follows.
 */
export const VERSION_AHEAD_SLACK_MS = 60_000;
/**
 * Number of nodes that must agree on a date before it is trusted: two wrong clocks are seldom wrong in the same way.
 */
const DATES_MIN_COUNT = 2;
/**
 * While the date of the cluster is not trusted, a version is followed unless it is further ahead than any machine's
 * date is by mistake.
 */
const UNJUDGED_AHEAD_MAX_MS = 50 * 365 * 86_400_000;
/**
 * Range of wall-clock dates from which versions are made. Dates outside it are clamped: they are wrong anyway, and
 * later versions need room.
 */
const WALL_MIN_MS = 1;
const WALL_MAX_MS = (VERSION_MAX - 2 ** 44) / VERSIONS_PER_MS;

/**
 * Versions of pages: a hybrid logical clock (Kulkarni et al., 2014) in one number, milliseconds times 2^11. A version
 * is the latest one up to the {@link present} with the remainder modulo OWN_STEP of the node's number; if that is not
 * later than the latest version that this node has given out or seen, it is the first later one with that remainder. So
 * a version that a node gives out after it has seen another one is newer than it, however wrong its wall clock is; and
 * if clocks are in step, versions of different nodes are in the order of real time. Nodes may give out the same
 * version, but seldom. Whole numbers, exact until the year 2109.
 *
 * Versions that run ahead of the present, because many were given out within an instant, do not move it. Otherwise it
 * would run ahead of all dates, and take the other nodes' presents with it.
 *
 * One wrong clock must not move all others: a version further ahead than VERSION_AHEAD_MAX_MS is not followed (see
 * {@link isAhead}). "Ahead" is measured from the wall clock, or from the date of the cluster if that is trusted and
 * later, so that a node whose date is behind follows the others. Until two nodes have had the same date, this node
 * cannot tell whose clock is wrong, and follows: if it refused the version, it would read older content.
 */
export class HybridClock {
  readonly #clock: Pick<Clock, 'wallMs' | 'nowMs'>;
  /** The remainder of this node's versions. */
  readonly #remainder: number;
  #latest = 0;
  #jumpedTo = 0;
  /** The latest version that this node gave out before this start. */
  #earlier = 0;
  /** The present at one reading of the monotonic clock; from then on it advances as that clock does. */
  #anchor: number;
  #anchorMs: number;
  /** The largest lead of the wall clock over the monotonic clock so far. */
  #furthestMs = Number.NEGATIVE_INFINITY;
  /** Lead of the cluster's date over the monotonic clock; undefined: the date is not known. */
  #clusterAheadMs: number | undefined;
  /** Whether several nodes agree, or once agreed, on the date of the cluster. */
  #isJudge = false;

  /** `nodeNumber` is a whole number, different on each node, so that two nodes seldom give out the same version. */
  constructor(clock: Pick<Clock, 'wallMs' | 'nowMs'>, nodeNumber = 0) {
    this.#clock = clock;
    this.#anchor = this.#wallVersion();
    this.#anchorMs = clock.nowMs();
    this.#remainder = nodeNumber % OWN_STEP;
  }

  /** A new version, later than every version given out or seen. */
  next(): number {
    // The present is used, not the wall clock: when a wall clock that was ahead is corrected, later content must still
    // be newer, on all nodes.
    const version = Math.max(this.#ownUpTo(this.#latest + OWN_STEP), this.#ownUpTo(this.present()));
    assert(version > this.#latest, () => `hybrid clock: version ${version} after ${this.#latest}`);
    this.#latest = version;
    return version;
  }

  /**
   * Takes note of another node's version: this node's later versions are greater. If it is so far ahead that the other
   * node's clock must be ahead, too, the present moves to it.
   */
  see(version: number): void {
    if (version <= this.#latest || !isVersion(version) || version > this.#limit()) return;
    this.#latest = version;
    if (version <= this.present() + CLOCKS_APART) return;
    this.#jumpedTo = version;
    this.#goOnFrom(version);
  }

  /** Takes note of another node's present: from now on, this node's present is not before it. */
  hear(present: number): void {
    this.see(present);
    if (isVersion(present) && present <= this.#limit() && present > this.present()) this.#goOnFrom(present);
  }

  /**
   * Takes note of a version that this node gave out before it started, perhaps with a wrong date. It is not followed if
   * it is far ahead of the current date.
   */
  remember(version: number): void {
    this.#earlier = Math.max(this.#earlier, version);
    if (version <= versionAt(this.dateMs() + VERSION_AHEAD_MAX_MS)) this.see(version);
  }

  /**
   * A version later than all versions of this node, including those passed to {@link remember} that were not followed.
   */
  afterEarlier(): number {
    return Math.max(this.next(), this.#earlier + 1);
  }

  /**
   * Whether a version, or an expiry, is so far ahead that a wrong clock must have made it: its page is refused. The
   * slack makes sure that a version which one node follows is not ahead for another one whose date is a little behind,
   * because a wrong refusal would leave older content readable.
   */
  isAhead(version: number, expires = 0): boolean {
    const limit = this.#limit() + VERSION_AHEAD_SLACK_MS * VERSIONS_PER_MS;
    return version > limit || expires > limit + EXPIRY_MAX_MS * VERSIONS_PER_MS;
  }

  /** The wall clock, in milliseconds since 1970. */
  wallMs(): number {
    return this.#clock.wallMs();
  }

  /**
   * The date that this node goes by, in milliseconds since 1970: the date of the cluster if it is known and later than
   * the date of this machine, else the latter.
   */
  dateMs(): number {
    return Math.max(this.#clock.wallMs(), this.#clusterMs());
  }

  /** Takes note of the date of the cluster, on which `datesCount` nodes agree; it advances with the monotonic clock. */
  follow(clusterMs: number, datesCount: number): void {
    this.#clusterAheadMs = clusterMs - this.#clock.nowMs();
    // Once trusted, the date stays trusted: with fewer nodes left, no other date is better known.
    this.#isJudge ||= datesCount >= DATES_MIN_COUNT;
  }

  isRightAt(clusterMs: number, isOthers: boolean): boolean {
    const wallMs = this.#clock.wallMs();
    const hasSteppedBack = this.#furthestMs > wallMs - this.#clock.nowMs() + CLOCK_AHEAD_MAX_MS;
    return wallMs <= clusterMs + CLOCK_AHEAD_MAX_MS && (isOthers || hasSteppedBack || this.#isJudge);
  }

  beginAgain(clusterMs: number): boolean {
    const present = this.now();
    if (present <= refusedAfter(clusterMs)) return false;
    this.#earlier = Math.max(this.#earlier, present);
    this.#latest = 0;
    this.#jumpedTo = 0;
    this.#goOnFrom(this.#wallVersion());
    this.follow(clusterMs, DATES_MIN_COUNT);
    return true;
  }

  /** Milliseconds that the wall clock is ahead of the date of the cluster; 0 while that is not known. */
  get offsetMs(): number {
    return this.#clusterAheadMs === undefined ? 0 : this.#clock.wallMs() - this.#clusterMs();
  }

  /**
   * The latest version that was far ahead of this node's present when it was seen: versions that this node gave out
   * before it are older. 0: there was none.
   */
  get jumpedTo(): number {
    return this.#jumpedTo;
  }

  /**
   * The present: the wall clock, or the latest present that this node has heard of. It never goes back, and goes
   * forward as real time does while the wall clock stands still or is behind.
   */
  present(): number {
    const present = this.#anchor + Math.floor((this.#clock.nowMs() - this.#anchorMs) * VERSIONS_PER_MS);
    const wall = this.#wallVersion();
    if (wall <= present) return present;
    this.#goOnFrom(wall);
    return wall;
  }

  /** The present as a version: not before any version given out or seen. */
  now(): number {
    return Math.max(this.#latest, this.present());
  }

  /** The version that will be the present in `ms` milliseconds. */
  in(ms: number): number {
    return Math.min(VERSION_MAX, this.now() + Math.ceil(ms * VERSIONS_PER_MS));
  }

  /** Milliseconds until this version becomes the present; 0 or less if it already has. */
  msUntil(version: number): number {
    return (version - this.now()) / VERSIONS_PER_MS;
  }

  #goOnFrom(present: number): void {
    this.#anchor = present;
    this.#anchorMs = this.#clock.nowMs();
  }

  /** The latest of this node's own versions that is not above `version`. */
  #ownUpTo(version: number): number {
    return version - ((version - this.#remainder) % OWN_STEP);
  }

  #wallVersion(): number {
    const wallMs = this.#clock.wallMs();
    this.#furthestMs = Math.max(this.#furthestMs, wallMs - this.#clock.nowMs());
    return versionAt(wallMs);
  }

  #clusterMs(): number {
    return this.#clock.nowMs() + (this.#clusterAheadMs ?? Number.NEGATIVE_INFINITY);
  }

  /** The latest version that this node follows. */
  #limit(): number {
    return versionAt(this.dateMs() + (this.#isJudge ? VERSION_AHEAD_MAX_MS : UNJUDGED_AHEAD_MAX_MS));
  }
}

/** The first version of a date, in milliseconds since 1970. */
export function versionAt(wallMs: number): number {
  return Math.floor(Math.min(WALL_MAX_MS, Math.max(WALL_MIN_MS, wallMs))) * VERSIONS_PER_MS;
}

/** The latest version that is accepted at a date, in milliseconds since 1970. */
export function refusedAfter(dateMs: number): number {
  return versionAt(dateMs + VERSION_AHEAD_MAX_MS + VERSION_AHEAD_SLACK_MS);
}

/** The date of a version, in milliseconds since 1970. */
export function dateOf(version: number): number {
  return version / VERSIONS_PER_MS;
}

/** Clock information that nodes exchange, so that nodes whose present is behind catch up. */
export interface SharedClock {
  /** The present, as a version. */
  present(): number;
  /** The wall clock, in milliseconds since 1970. */
  wallMs(): number;
  /** Takes note of the date of the cluster, on which `datesCount` nodes agree. */
  follow(clusterMs: number, datesCount: number): void;
  /** Milliseconds that the wall clock is ahead of the date of the cluster; 0 while that is not known. */
  readonly offsetMs: number;
  /** Takes note of another node's present. */
  hear(present: number): void;
  /**
   * Whether the wall clock is right although this node's versions are far ahead of this date of the cluster. It is if
   * it is not too far ahead itself, and either it is known to have been ahead before, or several nodes have that date
   * (`isOthers`: it is the date of another node). A date that may always have been behind proves nothing.
   */
  isRightAt(clusterMs: number, isOthers: boolean): boolean;
  /**
   * If {@link isRightAt}: restarts from the wall clock and no longer follows versions too far ahead of this date of the
   * cluster. The caller drops everything that has such a version. Returns false, and changes nothing, if there is no
   * such version.
   */
  beginAgain(clusterMs: number): boolean;
}

/** Whether `value` can be a version: a whole number; 0 stands for no version. */
export function isVersion(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= VERSION_MAX;
}
