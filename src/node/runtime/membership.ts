import type { SharedClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import type { MeshCacheConfig } from '../../config.js';
import { DiscoveryClient, type DiscoveryClientOptions } from '../../discovery/client.js';
import { EmbeddedMaster } from '../../discovery/embedded-master.js';
import type { Rendezvous } from '../../discovery/sources/rendezvous.js';
import { openNodeFault } from '../../net/loopback.js';
import type { NodeInfo } from '../../types.js';

/** Called when the members, or this node's part among them, change. */
export type MembershipListener = Required<
  Pick<DiscoveryClientOptions, 'onMembers' | 'onForgotten' | 'onExpired' | 'onReplaced'>
>;

export interface MembershipParts {
  readonly config: MeshCacheConfig;
  readonly self: NodeInfo;
  /** The address on which this node listens. */
  readonly host: string;
  /** The listed addresses at startup. */
  readonly listed: readonly Endpoint[];
  /** Source of further addresses; undefined if the list does not change. */
  readonly rendezvous: Rendezvous | undefined;
  readonly listener: MembershipListener;
  /** The clock of this node. */
  readonly clock: SharedClock;
  readonly env: Environment;
}

/** This node's part in discovery: its client of the discovery masters, and its own master while it has a seat. */
export class Membership {
  readonly master: EmbeddedMaster;
  readonly discovery: DiscoveryClient;
  readonly rendezvous: Rendezvous | undefined;
  readonly #env: Environment;
  readonly #ownAddr: string;
  /** Cached results for the present members; undefined after they have changed. */
  #liveSeen: ReadonlySet<string> | undefined;
  #seatSeen: boolean | undefined;

  constructor({ config, self, host, listed, rendezvous, listener, clock, env }: MembershipParts) {
    const timing = { heartbeatInterval: config.heartbeatInterval, memberTtl: config.memberTtl };
    const master = new EmbeddedMaster(listed, {
      ...timing,
      ownHost: host,
      isHostChosen: config.localHostname !== undefined,
      openFault: (address) =>
        config.allowUnauthenticated
          ? undefined
          : openNodeFault(address, env.secrets !== undefined || env.tls !== undefined),
      owner: { nodeId: self.nodeId, settings: config },
      clock,
      env,
    });
    this.#env = env;
    this.#ownAddr = self.masterAddr;
    this.master = master;
    this.rendezvous = rendezvous;
    this.discovery = new DiscoveryClient(rendezvous === undefined ? config.discoveryAddr : listed, self, {
      ...timing,
      ...listener,
      onMembers: (members, changed, left) => {
        this.#forgetSeen();
        listener.onMembers(members, changed, left);
      },
      onUnreachable: () => void master.tryTakeOver(),
      onMasters: (masters) => this.#mastersChanged(masters),
      isOwnMaster: (masterId) => master.has(masterId),
      settings: config,
      maxMasters: config.maxMasters,
      clock,
      env,
    });
  }

  /** Joins the cluster; see `DiscoveryClient.start`. Listed addresses follow the source from now on. */
  async join(): Promise<void> {
    this.rendezvous?.follow({
      state: () => ({
        isJoined: this.discovery.isReachable,
        isHead: this.master.isHead,
        hasSeat: this.#hasSeat(),
        live: () => this.#live(),
      }),
      ownAddr: this.#ownAddr,
      onListed: (listed) => {
        void this.master.setListed(listed);
        this.discovery.setListed(listed);
      },
    });
    await this.discovery.start();
  }

  /** `host:port` of the master that each member's host runs when it has a seat. */
  #live(): ReadonlySet<string> {
    this.#liveSeen ??= new Set([...this.discovery.members().values()].map(({ masterAddr }) => masterAddr));
    return this.#liveSeen;
  }

  /** Whether this host has a seat. */
  #hasSeat(): boolean {
    this.#seatSeen ??= this.discovery.seats().some((endpoint) => formatEndpoint(endpoint) === this.#ownAddr);
    return this.#seatSeen;
  }

  #forgetSeen(): void {
    this.#liveSeen = undefined;
    this.#seatSeen = undefined;
  }

  #mastersChanged(masters: readonly Endpoint[]): void {
    this.#forgetSeen();
    const seats = this.discovery.seats().map(formatEndpoint).join(', ');
    this.#env.log.log('info', 'discovery masters changed', { seats });
    void this.master.mastersChanged(masters);
  }
}
