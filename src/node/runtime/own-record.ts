import type { Clock } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint, isEveryAddress } from '../../base/environment/network.js';
import type { MeshCacheConfig } from '../../config.js';
import { isHostOf } from '../../net/loopback.js';
import type { Transport } from '../../transport/contract/transport.js';
import { type NamespaceFingerprint, NodeInfo } from '../../types.js';

/** The id of this node, and its current incarnation. */
export class NodeIdentity {
  readonly nodeId: string;
  readonly #clock: Clock;
  #incarnation: number;
  #startedMs: number;

  constructor(nodeId: string, clock: Clock) {
    this.nodeId = nodeId;
    this.#clock = clock;
    this.#incarnation = Math.floor(clock.wallMs());
    this.#startedMs = clock.nowMs();
  }

  /** Wall-clock milliseconds of this start. Later starts have higher numbers. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Milliseconds since this start. */
  get uptimeMs(): number {
    return this.#clock.nowMs() - this.#startedMs;
  }

  /** Makes the running node count as a new start of itself. */
  renew(): void {
    this.#incarnation = Math.max(Math.floor(this.#clock.wallMs()), this.#incarnation + 1);
    this.#startedMs = this.#clock.nowMs();
  }
}

/** The address of the discovery master on a node's host, used when that host has a seat. */
type MasterSeat = Pick<NodeInfo, 'isListed' | 'masterAddr'>;

/** Whether the node accepts pages of others, and how many bytes it has for them. */
type StorageRole = Pick<NodeInfo, 'role' | 'poolBytes'>;

/** Everything that a node states about itself. */
export interface NodeDescription {
  readonly identity: NodeIdentity;
  readonly transport: Transport;
  /** Endpoint of the control plane. */
  readonly control: Endpoint;
  /** Endpoint of the metrics server; undefined without one. */
  readonly metrics: Endpoint | undefined;
  readonly masterSeat: MasterSeat;
  /** Rack or zone of this host; undefined: none. */
  readonly zone: string | undefined;
  /** Fingerprint of the node's own namespace; undefined: none. */
  readonly fingerprint: NamespaceFingerprint | undefined;
  readonly storage: StorageRole;
  /** Whether the node's disk does not answer. */
  readonly isDiskHung: boolean;
}

export function storageRoleOf({ role, globalSegmentSize }: MeshCacheConfig): StorageRole {
  return { role, poolBytes: role === 'storage' ? globalSegmentSize : 0 };
}

/** The record by which other nodes know this one. */
export function describeNode(said: NodeDescription): NodeInfo {
  const { identity, transport, control, metrics, masterSeat, storage, zone = '', fingerprint, isDiskHung } = said;
  const { rdma, tcp } = transport.localEndpoints();
  return new NodeInfo({
    nodeId: identity.nodeId,
    controlHost: control.host,
    controlPort: control.port,
    rdmaHost: rdma?.host,
    rdmaPort: rdma?.port,
    tcpHost: tcp?.host,
    tcpPort: tcp?.port,
    protocols: rdma === undefined ? ['tcp'] : ['rdma', 'tcp'],
    ...metricsAddress(metrics, control.host),
    incarnation: identity.incarnation,
    ...masterSeat,
    zone,
    fingerprint,
    ...storage,
    isDiskHung,
  });
}

/** A host's master uses the listed address of that host; on an unlisted host, it uses `port`. */
export async function masterSeatOf(
  host: string,
  { listed, port }: { readonly listed: readonly Endpoint[]; readonly port: number },
  env: Environment,
): Promise<MasterSeat> {
  const isHost = await Promise.all(listed.map((endpoint) => isHostOf(endpoint.host, host, env.host)));
  const own = listed[isHost.indexOf(true)];
  return { isListed: own !== undefined, masterAddr: formatEndpoint(own ?? { host, port }) };
}

/** The address at which others reach the metrics server: the node's own, if the server listens on every address. */
function metricsAddress(
  metrics: Endpoint | undefined,
  ownHost: string,
): { metricsHost?: string; metricsPort?: number } {
  if (metrics === undefined) return {};
  const { host, port } = metrics;
  return { metricsHost: isEveryAddress(host) ? ownHost : host, metricsPort: port };
}
