import { assertAtMost } from '../../base/assert.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { DISCOVERY_MASTERS_MAX_COUNT } from '../../base/limits.js';

/** Receives what an {@link AddressSource} finds. */
export interface SourceListener {
  /** Called with each answer: all addresses that the source knows, in the order in which they are to be tried. */
  onFound(endpoints: readonly Endpoint[]): void;
  /** Called when the source does not answer, or with an error. */
  onFailure(reason: string): void;
  /** Called when the source has accepted this node's own master, or with the reason why it has not. */
  onRegistered(failure: string | undefined): void;
}

/** This node's own master, which a source may name to others. */
export interface OwnSeat {
  /** `host:port` of the master that this node's host has when it has a seat. */
  readonly addr: string;
  /** Whether that host has a seat, by the members that this node knows. */
  readonly hasSeat: boolean;
  /** Whether a master answers. */
  readonly isJoined: boolean;
}

/**
 * A place outside the cluster that names addresses of nodes. Nodes only meet there. They decide among themselves who is
 * a member and who runs a master, and keep what they know while a source is silent.
 */
export interface AddressSource {
  /** The source as `discovery_addr` names it. */
  readonly name: string;
  /** An address of the source itself if it is a server: the route there tells this node's own address. */
  readonly server?: Endpoint | undefined;
  /** Begins to ask. To be called once. */
  start(listener: SourceListener): void;
  /** If true, asks as often as allowed, because this node has no master. */
  setUrgent(isUrgent: boolean): void;
  /** Takes the present state of this node's own master, if the source can name it to others. */
  setOwn?(own: OwnSeat): void;
  /** Ends all work. Idempotent. */
  stop(): Promise<void>;
}

/** Time after which a node without a master widens its search. */
const WIDEN_MS = 2_000;

/** Time for which a node that runs a master tries one address that belongs to no member. */
const STRANGER_MS = 3_000;

/** The state of the cluster as this node sees it. */
export interface JoinedState {
  readonly nowMs: number;
  /** Whether a master answers. */
  readonly isJoined: boolean;
  /** Whether this node runs a master. */
  readonly isHead: boolean;
  /** Returns the `host:port` of the masters that the hosts of the members have when they have a seat. */
  live(): ReadonlySet<string>;
}

export interface ListedOptions {
  /** How many of the first addresses are listed. */
  readonly seats: number;
  /** Milliseconds for which an address stays listed when the source no longer names it among the first. */
  readonly keptMs: number;
}

interface Found {
  /** `host:port` */
  readonly name: string;
  readonly endpoint: Endpoint;
}

interface Kept extends Found {
  /** Time at which the source ceased to name it among the first; undefined: it still does. */
  missingSinceMs: number | undefined;
}

/**
 * Chooses the listed addresses from those that a source has found. These are the places where nodes meet: each node
 * talks to the masters there, and the nodes there run one.
 *
 * The first few addresses are listed, so that nodes with the same answer choose the same ones, and the first few of
 * live members, in case some of the others are dead. Such an address stays for a while, because sources show different
 * parts to different nodes or at different times. A node without a master tries further addresses, more from time to
 * time, in case the first ones are dead. A node that runs a master tries those that belong to no member, one after the
 * other, because another part of the cluster may have begun there.
 */
export class ListedAddresses {
  readonly #seats: number;
  readonly #keptMs: number;
  #found: readonly Found[] = [];
  readonly #kept = new Map<string, Kept>();
  #loneSinceMs: number | undefined;

  constructor({ seats, keptMs }: ListedOptions) {
    this.#seats = Math.min(seats, DISCOVERY_MASTERS_MAX_COUNT);
    this.#keptMs = keptMs;
  }

  /** Takes an answer. An empty one changes nothing. */
  answered(found: readonly Endpoint[]): void {
    if (found.length > 0) this.#found = found.map((endpoint) => ({ name: formatEndpoint(endpoint), endpoint }));
  }

  /** The listed addresses now: at most DISCOVERY_MASTERS_MAX_COUNT. */
  listed({ nowMs, isJoined, isHead, live }: JoinedState): Endpoint[] {
    if (isJoined) this.#loneSinceMs = undefined;
    else this.#loneSinceMs ??= nowMs;
    const first = this.#found.slice(0, this.#seats);
    const alive = isJoined && this.#found.length > this.#seats ? firstOf(this.#found, this.#seats, live()) : [];
    this.#keep([...first, ...alive], nowMs);
    const further = this.#loneSinceMs === undefined ? [] : this.#widened(nowMs - this.#loneSinceMs);
    const stranger = isJoined && isHead ? this.#stranger(nowMs, live()) : [];
    const all = [...first, ...alive, ...further, ...stranger, ...this.#kept.values()];
    const distinct = new Map(all.map(({ name, endpoint }) => [name, endpoint]));
    return [...distinct.values()].slice(0, DISCOVERY_MASTERS_MAX_COUNT);
  }

  #keep(wanted: readonly Found[], nowMs: number): void {
    const names = new Set(wanted.map(({ name }) => name));
    for (const [name, kept] of this.#kept) {
      if (names.has(name)) continue;
      kept.missingSinceMs ??= nowMs;
      if (nowMs - kept.missingSinceMs >= this.#keptMs) this.#kept.delete(name);
    }
    for (const found of wanted) {
      // Inserting it anew makes it the last, which is the latest.
      this.#kept.delete(found.name);
      this.#kept.set(found.name, { ...found, missingSinceMs: undefined });
    }
    for (const name of this.#kept.keys()) {
      if (this.#kept.size <= DISCOVERY_MASTERS_MAX_COUNT) break;
      this.#kept.delete(name);
    }
  }

  /** The addresses after the first ones that a node tries after `loneMs` without a master. */
  #widened(loneMs: number): Found[] {
    const rest = this.#found.slice(this.#seats);
    const room = DISCOVERY_MASTERS_MAX_COUNT - this.#seats;
    const reach = this.#seats * Math.floor(loneMs / WIDEN_MS);
    if (reach <= room || rest.length <= room) return rest.slice(0, Math.min(reach, room));
    // A window over all of them, which moves on and starts over at the end.
    const start = (reach - room) % rest.length;
    return [...rest, ...rest].slice(start, start + room);
  }

  #stranger(nowMs: number, live: ReadonlySet<string>): Found[] {
    const strangers = this.#found.filter(({ name }) => !live.has(name));
    return strangers.slice(Math.floor(nowMs / STRANGER_MS) % (strangers.length || 1)).slice(0, 1);
  }

  /** @internal Throws `InvariantError` unless what is kept is within its limit. */
  verify(): void {
    assertAtMost('listed addresses: kept', this.#kept.size, DISCOVERY_MASTERS_MAX_COUNT);
  }
}

function firstOf(found: readonly Found[], count: number, live: ReadonlySet<string>): Found[] {
  const first: Found[] = [];
  for (const one of found) {
    if (first.length === count) break;
    if (live.has(one.name)) first.push(one);
  }
  return first;
}
