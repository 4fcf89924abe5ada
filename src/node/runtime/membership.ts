import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import type { MeshCacheConfig } from '../../config.js';
import { DiscoveryClient, type DiscoveryClientOptions } from '../../discovery/client.js';
import { EmbeddedMaster } from '../../discovery/embedded-master.js';
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
  readonly listener: MembershipListener;
  readonly env: Environment;
}

/** This node's part in discovery: its client of the discovery masters, and a master of its own while it has a seat. */
export class Membership {
  readonly master: EmbeddedMaster;
  readonly discovery: DiscoveryClient;
  readonly #env: Environment;

  constructor({ config, self, host, listener, env }: MembershipParts) {
    const timing = { heartbeatInterval: config.heartbeatInterval, memberTtl: config.memberTtl };
    const master = new EmbeddedMaster(config.discoveryEndpoints(), {
      ...timing,
      ownHost: host,
      isHostChosen: config.localHostname !== undefined,
      owner: { nodeId: self.nodeId, settings: config },
      env,
    });
    this.#env = env;
    this.master = master;
    this.discovery = new DiscoveryClient(config.discoveryAddr, self, {
      ...timing,
      ...listener,
      onUnreachable: () => void master.tryTakeOver(),
      onMasters: (masters) => this.#mastersChanged(masters),
      isOwnMaster: (masterId) => master.has(masterId),
      settings: config,
      maxMasters: config.maxMasters,
      env,
    });
  }

  #mastersChanged(masters: readonly Endpoint[]): void {
    const seats = this.discovery.seats().map(formatEndpoint).join(', ');
    this.#env.log.log('info', 'discovery masters changed', { seats });
    void this.master.mastersChanged(masters);
  }
}
