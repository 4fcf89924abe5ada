import type { Endpoint } from '../../base/environment/network.js';

/** What an {@link AddressSource} tells. */
export interface SourceListener {
  /** Called with each answer: all addresses that the source knows, those that are to be tried first in front. */
  onFound(endpoints: readonly Endpoint[]): void;
  /** Called when the source does not answer, or with an error. */
  onFailure(reason: string): void;
  /** Called when the source has taken what this node says of its own master, and with a reason when it has not. */
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
 * A place outside of the cluster that names addresses of nodes. It is only where nodes meet: who is a member, and who
 * runs a master, is decided by the nodes, which keep what they know while a source is silent.
 */
export interface AddressSource {
  /** The source as `discovery_addr` names it. */
  readonly name: string;
  /** An address of the source itself if it is a server: the route there tells this node's own address. */
  readonly server?: Endpoint | undefined;
  /** Begins to ask. To be called once. */
  start(listener: SourceListener): void;
  /** Asks as often as it may while this node has no master. */
  setUrgent(isUrgent: boolean): void;
  /** Takes the present state of this node's own master, if the source can name it to others. */
  setOwn?(own: OwnSeat): void;
  /** Ends all work. Idempotent. */
  stop(): Promise<void>;
}
