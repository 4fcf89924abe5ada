import type { Endpoint } from '../../base/environment/network.js';

/** What an {@link AddressSource} tells. */
export interface SourceListener {
  /** Called with each answer: all addresses that the source knows, those that are to be tried first in front. */
  onFound(endpoints: readonly Endpoint[]): void;
  /** Called when the source does not answer, or with an error. */
  onFailure(reason: string): void;
}

/**
 * A place outside of the cluster that names addresses of nodes. It is only where nodes meet: who is a member, and who runs a master, is
 * decided by the nodes, which keep what they know while a source is silent.
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
  /** Ends all work. Idempotent. */
  stop(): Promise<void>;
}
