import { systemEnvironment } from '../base/environment.js';
import { silentLogger } from '../base/log.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { type SecurityConfig, securedEnvironment } from '../base/secured-environment.js';
import { DiscoveryMethod, decodeAnswer } from '../discovery/wire.js';
import type { NodeReport } from '../metrics/node-report.js';
import { RpcClient } from '../rpc/client.js';
import { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import { CommandFailure } from './failure.js';

/** What one node says of itself; a node of an older version leaves fields out. */
export type NodeStatus = Partial<NodeReport> & Pick<NodeReport, 'node_id'>;

/** Asks masters and nodes from outside of the cluster; joins nothing. */
export class ClusterQuery {
  readonly #codec = new MessageCodec();
  readonly #rpc: RpcClient;

  /** With what the cluster asks for. Throws `ConfigError` when a file of it cannot be used. */
  constructor(security: SecurityConfig = {}) {
    this.#rpc = new RpcClient({ env: securedEnvironment(security, systemEnvironment({ log: silentLogger })) });
  }

  /** The members that the first of the masters that answers knows. Throws {@link CommandFailure} when none does. */
  async members(masters: readonly Endpoint[]): Promise<NodeInfo[]> {
    const reasons: string[] = [];
    for (const master of masters) {
      try {
        const answer = decodeAnswer(this.#codec, await this.#rpc.call(master, DiscoveryMethod.members, {}));
        if (answer.roster !== undefined) return [...answer.roster.members.values()];
        reasons.push(`${formatEndpoint(master)}: answers without a list of members`);
      } catch (error) {
        const { message } = error as Error;
        const where = formatEndpoint(master);
        reasons.push(message.startsWith(where) ? message : `${where}: ${message}`);
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
      const answer = await this.#rpc.call(endpoint, 'node.status', {});
      return isStatus(answer) ? answer : { error: 'answers, but not with a status of this version' };
    } catch (error) {
      return { error: (error as Error).message };
    }
  }

  async close(): Promise<void> {
    await this.#rpc.close();
  }
}

/** What is printed and counted with is looked at; a node of an older version leaves fields out. */
function isStatus(answer: unknown): answer is NodeStatus {
  if (typeof answer !== 'object' || answer === null) return false;
  const { vnodes, health } = answer as Record<string, unknown>;
  const isCountable =
    vnodes === undefined || (Number.isSafeInteger(vnodes) && (vnodes as number) >= 1 && (vnodes as number) <= 4096);
  const reasons = (health as { reasons?: unknown } | null | undefined)?.reasons;
  return isCountable && (health === undefined || Array.isArray(reasons));
}
