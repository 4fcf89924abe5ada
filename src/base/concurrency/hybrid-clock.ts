import { assert } from '../assert.js';
import type { Clock } from '../environment/clock.js';
import { CLOCK_AHEAD_MAX_MS, EXPIRY_MAX_MS, VERSION_AHEAD_MAX_MS } from '../limits.js';

const VERSIONS_PER_MS = 2048;
/**
 * Distance between versions that a node gives out in a row within an instant: nodes that give out versions in the same
 * instant, or have seen the same version, mostly give out different ones. A longer distance would make the versions of
 * busy nodes run further ahead of the present.
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
 * A version that is further ahead by so much more is refused: dates differ a little, and no node is to refuse what
 * another one follows.
 */
export const VERSION_AHEAD_SLACK_MS = 60_000;
/** A date that so many nodes have is known: a clock that is wrong is seldom wrong in the same way as another one. */
const DATES_MIN_COUNT = 2;
/**
 * The date of the cluster is not known well: a version is followed unless it is further ahead than any date that a
 * machine has by mistake.
 */
const UNJUDGED_AHEAD_MAX_MS = 50 * 365 * 86_400_000;
/** The dates from which versions are taken: later ones are as wrong, and leave room for versions that follow. */
const WALL_MIN_MS = 1;
const WALL_MAX_MS = (VERSION_MAX - 2 ** 44) / VERSIONS_PER_MS;

/**
 * Versions of what is set: a hybrid logical clock (Kulkarni et al., 2014) in one number, milliseconds times 2^11. A
 * version is the latest one up to the {@link present} that has the same remainder modulo OWN_STEP as the node's own
 * number; when that is not later than the latest version that this node has given out or seen, it is the first later
 * one with that remainder. So whatever a node sets after it has seen a version is newer than it, however wrong its wall
 * clock is; and with clocks in step, versions of different nodes are in the order of real time. Nodes may give out the
 * same version, but seldom. Whole numbers, exact until the year 2109.
 *
 * Versions that are ahead of the present, because many were given out within an instant, do not move it: it would run
 * ahead of all dates with each of them, and the others' presents with it.
 *
 * One wrong clock must not move all others: a version that is further ahead than VERSION_AHEAD_MAX_MS is not followed
 * (see {@link isAhead}). Ahead of the wall clock, or of the date of the cluster if that is later and known, so that a
 * node whose date is behind follows the others. As long as no two nodes have had the same date, this one cannot tell
 * whose clock is wrong, and follows: what it did not believe, it would read the older content of.
 */
export class HybridClock {
  readonly #clock: Pick<Clock, 'wallMs' | 'nowMs'>;
  /** The remainder of this node's versions. */
  readonly #remainder: number;
  #latest = 0;
  #jumpedTo = 0;
  /** The latest version of before this start. */
  #earlier = 0;
  /** The present at a reading of the monotonic clock, from which on it goes forward as that clock does. */
  #anchor: number;
  #anchorMs: number;
  /** The furthest that the wall clock has been ahead of the monotonic clock. */
  #furthestMs = Number.NEGATIVE_INFINITY;
  /** The date of the cluster, as what it is ahead of the monotonic clock; undefined: not known. */
  #clusterAheadMs: number | undefined;
  /** Whether the date of the cluster is, or was once, that of several nodes. */
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
    // The present, and not the wall clock: after a wall clock was ahead and is right again, what is set later is newer
    // still, on all nodes.
    const version = Math.max(this.#ownUpTo(this.#latest + OWN_STEP), this.#ownUpTo(this.present()));
    assert(version > this.#latest, () => `hybrid clock: version ${version} after ${this.#latest}`);
    this.#latest = version;
    return version;
  }

  /**
   * Takes note of a version that another node has given out: later ones of this node are greater. If it is so far ahead
   * that the other node's clock must be, the present follows.
   */
  see(version: number): void {
    if (version <= this.#latest || !isVersion(version) || version > this.#limit()) return;
    this.#latest = version;
    if (version <= this.present() + CLOCKS_APART) return;
    this.#jumpedTo = version;
    this.#goOnFrom(version);
  }

  /** Takes note of the present of another node: that of this one is not before it, from now on. */
  hear(present: number): void {
    this.see(present);
    if (isVersion(present) && present <= this.#limit() && present > this.present()) this.#goOnFrom(present);
  }

  /**
   * Takes note of a version that this node has given out before it started, perhaps by a wrong date: one that is far
   * ahead of the present one is not followed.
   */
  remember(version: number): void {
    this.#earlier = Math.max(this.#earlier, version);
    if (version <= versionAt(this.dateMs() + VERSION_AHEAD_MAX_MS)) this.see(version);
  }

  /**
   * A version that is later than all that this node has, also than those of {@link remember} that it has not followed.
   */
  afterEarlier(): number {
    return Math.max(this.next(), this.#earlier + 1);
  }

  /**
   * Whether a version is so far ahead, or an expiry so much further, that a wrong clock has given it out: what has it
   * is refused. Versions that a node follows are not ahead for another one whose date is a little behind. To refuse
   * wrongly would leave older content to be read.
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
   * The date that this node goes by, in milliseconds since 1970: that of the cluster if it is known and later than that
   * of this machine.
   */
  dateMs(): number {
    return Math.max(this.#clock.wallMs(), this.#clusterMs());
  }

  /** Takes note of the date of the cluster, which so many nodes have; it goes on at the pace of the monotonic clock. */
  follow(clusterMs: number, datesCount: number): void {
    this.#clusterAheadMs = clusterMs - this.#clock.nowMs();
    // Once it was known, it goes on: with fewer nodes left no other date is better known.
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
   * The latest version seen that was far ahead of this clock's present then: those that this node gave out before are
   * older than it. 0: there was none.
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

  /** The version that will be the present in so many milliseconds. */
  in(ms: number): number {
    return Math.min(VERSION_MAX, this.now() + Math.ceil(ms * VERSIONS_PER_MS));
  }

  /** Milliseconds until this version is the present; 0 or less: it has been. */
  msUntil(version: number): number {
    return (version - this.now()) / VERSIONS_PER_MS;
  }

  #goOnFrom(present: number): void {
    this.#anchor = present;
    this.#anchorMs = this.#clock.nowMs();
  }

  /** The latest version of this node's own up to another one. */
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

/** The latest version that is not refused at a date, in milliseconds since 1970. */
export function refusedAfter(dateMs: number): number {
  return versionAt(dateMs + VERSION_AHEAD_MAX_MS + VERSION_AHEAD_SLACK_MS);
}

/** The date of a version, in milliseconds since 1970. */
export function dateOf(version: number): number {
  return version / VERSIONS_PER_MS;
}

/** What nodes tell each other of their clocks, so that those whose present is behind follow. */
export interface SharedClock {
  /** The present, as a version. */
  present(): number;
  /** The wall clock, in milliseconds since 1970. */
  wallMs(): number;
  /** Takes note of the date of the cluster, which so many nodes have. */
  follow(clusterMs: number, datesCount: number): void;
  /** Milliseconds that the wall clock is ahead of the date of the cluster; 0 while that is not known. */
  readonly offsetMs: number;
  /** Takes note of another node's present. */
  hear(present: number): void;
  /**
   * Whether the wall clock is right, although versions of this node are far ahead of this date of the cluster: it is
   * not too far ahead itself, and it is known that it was, or several nodes have that date (`isOthers`: it is that of
   * another node). A date that may always have been behind says nothing.
   */
  isRightAt(clusterMs: number, isOthers: boolean): boolean;
  /**
   * Where {@link isRightAt}: goes by the wall clock anew, and follows no version any more that is too far ahead of this
   * date of the cluster. The caller drops everything that has such a version. False: there is none, and nothing is
   * changed.
   */
  beginAgain(clusterMs: number): boolean;
}

/** Whether `value` can be the version of a node: a whole number, or 0 for no version. */
export function isVersion(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= VERSION_MAX;
}
