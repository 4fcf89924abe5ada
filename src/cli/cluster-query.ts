import { systemEnvironment } from '../base/environment.js';
import { silentLogger } from '../base/log.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { DiscoveryMethod, decodeAnswer } from '../discovery/wire.js';
import { RpcClient } from '../rpc/client.js';
import { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import { CommandFailure } from './failure.js';

/** What one node says of itself; fields that a node does not give are left out. */
export interface NodeStatus {
  readonly node_id: string;
  readonly incarnation?: number;
  readonly uptime_s?: number;
  readonly vnodes?: number;
  readonly version?: string;
  readonly protocols?: readonly string[];
  readonly control_endpoint?: string;
  readonly data_endpoint?: string;
  /** What this node reads by, where the other side speaks it too: `rdma` or `tcp`. */
  readonly data_protocol?: string;
  readonly is_meta?: boolean;
  readonly pool?: {
    readonly entries: number;
    readonly used_bytes: number;
    readonly capacity_bytes: number;
    readonly evictions: number;
  };
  /** Of a node with a disk tier. */
  readonly disk?: {
    readonly entries: number;
    readonly used_bytes: number;
    readonly capacity_bytes: number;
    readonly queue_bytes: number;
    readonly skipped_pages: number;
    readonly corrupt_pages: number;
    readonly evictions: number;
    readonly write_errors: number;
  } | null;
  readonly reads?: {
    readonly local: number;
    readonly remote: number;
    readonly disk: number;
    readonly misses: number;
  };
  readonly directory?: { readonly keys: number };
  readonly rss_bytes?: number;
}

/** Asks masters and nodes from outside of the cluster; joins nothing. */
export class ClusterQuery {
  readonly #codec = new MessageCodec();
  readonly #rpc = new RpcClient({ env: systemEnvironment({ log: silentLogger }) });

  /** The members that the first of the masters that answers knows. Throws {@link CommandFailure} when none does. */
  async members(masters: readonly Endpoint[]): Promise<NodeInfo[]> {
    const reasons: string[] = [];
    for (const master of masters) {
      try {
        const answer = decodeAnswer(this.#codec, await this.#rpc.call(master, DiscoveryMethod.members, {}));
        if (answer.roster !== undefined) return [...answer.roster.members.values()];
        reasons.push(`${formatEndpoint(master)}: answers without a list of members`);
      } catch (error) {
        reasons.push(`${formatEndpoint(master)}: ${(error as Error).message}`);
      }
    }
    throw new CommandFailure(
      `no discovery master answers (${reasons.join('; ')}). Check the address, that a node runs on that host with it as its discovery_addr, and the firewall.`,
    );
  }

  /** A node's answer, or why there is none. */
  async status(node: NodeInfo): Promise<NodeStatus | { readonly error: string }> {
    try {
      const endpoint = { host: node.controlHost, port: node.controlPort };
      return (await this.#rpc.call(endpoint, 'node.status', {})) as NodeStatus;
    } catch (error) {
      return { error: (error as Error).message };
    }
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }
}
