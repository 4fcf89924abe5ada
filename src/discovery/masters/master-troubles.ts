import { assertAtMost } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import {
  DISCOVERY_FORMER_MASTERS_KEPT_MS,
  DISCOVERY_FORMER_MASTERS_MAX_COUNT,
  DISCOVERY_LOG_INTERVAL_MS,
} from '../../base/limits.js';
import { describeDifferences, type Refusal, ruleOf } from '../messages/cluster-settings.js';

/**
 * Masters that one node has lost, by `host:port`. Time is passed in (monotonic milliseconds).
 *
 * Masters are dead when none has answered for the time-to-live, so that none tells which nodes are gone; they lose
 * their seats. Masters are former ones when their hosts have vanished without leaving, perhaps behind a partition.
 * Former masters are still tried, so that the two sides of a partition find each other again even if no listed address
 * is alive.
 */
export class LostMasters {
  readonly #dead = new Set<string>();
  /** Time at which each former master was lost, the earliest first. */
  readonly #former = new Map<string, number>();

  get dead(): ReadonlySet<string> {
    return this.#dead;
  }

  markDead(name: string, nowMs: number): void {
    this.#dead.add(name);
    this.markFormer(name, nowMs);
  }

  /** Forgets a master that answers, or whose host is known to live. */
  forget(name: string): void {
    this.#dead.delete(name);
    this.#former.delete(name);
  }

  /** Forgets dead masters, because the list of members tells again which nodes are gone. */
  forgetDead(): void {
    this.#dead.clear();
  }

  markFormer(name: string, nowMs: number): void {
    if (this.#former.has(name)) return;
    this.#former.set(name, nowMs);
    if (this.#former.size > DISCOVERY_FORMER_MASTERS_MAX_COUNT) {
      this.#former.delete(this.#former.keys().next().value as string);
    }
  }

  /** Whether a master is a former one that is still tried. */
  isFormer(name: string, nowMs: number): boolean {
    const sinceMs = this.#former.get(name);
    if (sinceMs === undefined) return false;
    if (nowMs - sinceMs < DISCOVERY_FORMER_MASTERS_KEPT_MS) return true;
    this.#former.delete(name);
    return false;
  }

  /** Throws `InvariantError` unless the former masters are within their limit. */
  verify(): void {
    assertAtMost('lost masters: former ones', this.#former.size, DISCOVERY_FORMER_MASTERS_MAX_COUNT);
  }
}

/** Logs that masters refuse this node, for each master at most once in DISCOVERY_LOG_INTERVAL_MS. */
export class RefusalLog {
  readonly #nodeId: string;
  readonly #env: Environment;
  /** Time of the last record about each master. */
  readonly #saidMs = new Map<string, number>();

  constructor(nodeId: string, env: Environment) {
    this.#nodeId = nodeId;
    this.#env = env;
  }

  /** Logs a refusal by `master`, given as `host:port`. */
  log(master: string, { nodeId, differences }: Refusal): void {
    const nowMs = this.#env.clock.nowMs();
    if (nowMs - (this.#saidMs.get(master) ?? Number.NEGATIVE_INFINITY) < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidMs.set(master, nowMs);
    this.#env.log.log('error', `a discovery master refuses this node: ${ruleOf(differences)}`, {
      node_id: this.#nodeId,
      master,
      master_node_id: nodeId,
      reason: describeDifferences(differences, false),
    });
  }
}

/** A date that is off by more than this is wrong, rather than compared late by a busy machine. */
const OFF_MS = 60_000;

/**
 * Logs when the date of this machine differs from that of the cluster, at most once in DISCOVERY_LOG_INTERVAL_MS, and
 * when it agrees again.
 */
export class DateLog {
  readonly #nodeId: string;
  readonly #env: Environment;
  #saidMs: number | undefined;

  constructor(nodeId: string, env: Environment) {
    this.#nodeId = nodeId;
    this.#env = env;
  }

  /** Takes the result of a comparison: how many milliseconds the date is ahead; negative: behind. */
  compared(offsetMs: number): void {
    const { clock, log } = this.#env;
    const fields = { node_id: this.#nodeId, ahead_s: Math.round(offsetMs / 1000) };
    if (Math.abs(offsetMs) <= OFF_MS) {
      if (this.#saidMs !== undefined)
        log.log('warn', 'the clock of this machine agrees with the cluster again', fields);
      this.#saidMs = undefined;
      return;
    }
    if (this.#saidMs !== undefined && clock.nowMs() - this.#saidMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidMs = clock.nowMs();
    log.log('warn', 'the clock of this machine differs from those of the cluster: set it by NTP', fields);
  }
}
