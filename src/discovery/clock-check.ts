import { dateOf, refusedAfter, type SharedClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import { CLOCK_AHEAD_MAX_MS } from '../base/limits.js';
import { clusterDate } from './members/cluster-date.js';
import type { MemberTable } from './members/member-table.js';
import { CLOCK_KEY, type SettingDifference } from './messages/cluster-settings.js';
import { clockOf, dateField } from './messages/wire.js';

export interface ClockCheckParts {
  /** The clock of the node that runs the master, and the id of that node. */
  readonly own: SharedClock;
  readonly ownerId: string;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly table: () => MemberTable;
}

/** Time for which the dates of members are used; they change when a date jumps. */
const DATES_MAX_AGE_MS = 250;
/** With the dates of so many other members, the median is right whatever the own date is. */
const JUDGES_MIN_COUNT = 2;

type Message = Readonly<Record<string, unknown>>;

/**
 * Whether the clocks of nodes may be those of members: not too far ahead of the date of the cluster. A node whose date is behind endangers nothing,
 * because it follows the versions of the others. Of two parts of a cluster that meet, the larger one is right. A master that goes by its own date, and whose node is off by the date that another master tells, refuses nobody
 * and tells no date.
 */
export class ClockCheck {
  readonly #parts: ClockCheckParts;
  #dates: readonly number[] = [];
  #datesVersion = 0;
  #datesOfMs = Number.NEGATIVE_INFINITY;

  constructor(parts: ClockCheckParts) {
    this.#parts = parts;
  }

  /** What the date of the node of a message is ahead of the monotonic clock here; undefined: it has not said. */
  dateAheadMs(message: Message): number | undefined {
    const dateMs = dateField(message, 'date_ms');
    return dateMs === undefined ? undefined : dateMs - this.#parts.clock.nowMs();
  }

  /** Why the node of a message cannot be a member; undefined: its clock is good enough. */
  differenceOf(message: Message): SettingDifference | undefined {
    const clusterMs = this.#clusterMs();
    if (clusterMs === undefined || this.#isOfLarger(message)) return undefined;
    const version = clockOf(message);
    const dateMs = dateField(message, 'date_ms') ?? dateOf(version);
    if (dateMs > clusterMs + CLOCK_AHEAD_MAX_MS) return { key: CLOCK_KEY, theirs: Math.floor(dateMs), ours: clusterMs };
    // A node whose date was ahead goes on giving out such versions.
    const isAhead = version > refusedAfter(clusterMs);
    return isAhead ? { key: CLOCK_KEY, theirs: Math.floor(dateOf(version)), ours: clusterMs } : undefined;
  }

  /** The date of the cluster, and how many nodes have it, as fields of an answer. */
  fields(): { readonly cluster_ms?: number; readonly cluster_dates?: number } {
    const clusterMs = this.#clusterMs();
    if (clusterMs === undefined) return {};
    const aheadMs = clusterMs - this.#parts.clock.nowMs();
    const ownMs = this.#parts.own.wallMs() - this.#parts.clock.nowMs();
    const agreeing = [ownMs, ...this.#dates].filter((date) => Math.abs(date - aheadMs) <= CLOCK_AHEAD_MAX_MS);
    return { cluster_ms: clusterMs, cluster_dates: agreeing.length };
  }

  /** Whether the node of a message is with more members than are here: then this master's node is the one that comes to the others. */
  #isOfLarger({ members }: Message): boolean {
    return typeof members === 'number' && members > this.#parts.table().size;
  }

  #clusterMs(): number | undefined {
    const { own, ownerId, clock, table } = this.#parts;
    const nowMs = clock.nowMs();
    const members = table();
    if (nowMs - this.#datesOfMs >= DATES_MAX_AGE_MS || members.version !== this.#datesVersion) {
      this.#dates = members.datesAheadMs(ownerId).sort((a, b) => a - b);
      this.#datesVersion = members.version;
      this.#datesOfMs = nowMs;
    }
    const isJudge = this.#dates.length >= JUDGES_MIN_COUNT || Math.abs(own.offsetMs) <= CLOCK_AHEAD_MAX_MS;
    return isJudge ? Math.floor(nowMs + clusterDate(own.wallMs() - nowMs, this.#dates)) : undefined;
  }
}
