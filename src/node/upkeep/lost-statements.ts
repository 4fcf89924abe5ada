import { assertAtMost } from '../../base/assert.js';
import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ANNOUNCE_RETRY_MAX_MS, MEMBERS_MAX_COUNT, RPC_RETRY_AFTER_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { MemberChange } from './member-log.js';
import { RESTATE_METHOD } from './page-drops.js';

export interface LostStatementsOptions {
  readonly nodeId: string;
  readonly rpc: RpcClient;
  readonly env: Environment;
  endpointOf(nodeId: string): Endpoint | undefined;
  /** Whether this incarnation of a node is a member. */
  isLive(nodeId: string, incarnation: number): boolean;
}

/** The incarnation of a node that is asked. */
interface Start {
  readonly incarnation: number;
}

/**
 * Asks a node that rejoined with the same incarnation to announce its pages to this node again. This node's shard has
 * dropped the other node's statements, and the other node may not know that it was ever gone: for a while, this node
 * heard only from a master that the other one did not reach, or a master that did not know the present incarnation
 * reported a former one again. A node that restarted after its clock went back is asked, too: until its former
 * incarnation was gone here, its statements were refused as older.
 */
export class LostStatements {
  readonly #options: LostStatementsOptions;
  /**
   * By node id, the incarnation that was the member before the present one, or before the node went; its statements
   * were dropped. The earliest change comes first.
   */
  readonly #dropped = new Map<string, number>();
  readonly #asked: PeerQueue<Start>;

  constructor(options: LostStatementsOptions) {
    this.#options = options;
    this.#asked = new PeerQueue({
      name: 'lost statements',
      env: options.env,
      backoff: { minMs: RPC_RETRY_AFTER_MS, maxMs: ANNOUNCE_RETRY_MAX_MS },
      maxCount: 1,
      isMember: (nodeId) => options.endpointOf(nodeId) !== undefined,
      tell: (nodeId, waiting) => this.#ask(nodeId, waiting),
    });
  }

  membersChanged({ before, after, changed }: MemberChange): void {
    this.#asked.membersChanged();
    for (const nodeId of changed) {
      const incarnation = after.get(nodeId)?.incarnation;
      const lost = before.get(nodeId)?.incarnation;
      if (incarnation !== undefined && incarnation === lost) continue;
      const known = Math.max(lost ?? 0, this.#dropped.get(nodeId) ?? 0);
      if (incarnation !== undefined && incarnation <= known)
        this.#asked.add(nodeId, [[RESTATE_METHOD, { incarnation }]]);
      this.#dropped.delete(nodeId);
      if (lost !== undefined) this.#dropped.set(nodeId, lost);
    }
    for (const nodeId of this.#dropped.keys()) {
      if (this.#dropped.size <= MEMBERS_MAX_COUNT) break;
      this.#dropped.delete(nodeId);
    }
  }

  stop(): void {
    this.#asked.stop();
  }

  /** Asks a node; if it has restarted meanwhile, it announces on its own. */
  async #ask(nodeId: string, waiting: readonly Waiting<Start>[]): Promise<readonly Waiting<Start>[]> {
    const { rpc, env, endpointOf, isLive } = this.#options;
    const endpoint = endpointOf(nodeId);
    const isSame = waiting.some(([, { incarnation }]) => isLive(nodeId, incarnation));
    if (!isSame || endpoint === undefined) return waiting;
    try {
      await rpc.call(endpoint, RESTATE_METHOD, { node_id: this.#options.nodeId });
      return waiting;
    } catch (error) {
      const fields = { node: nodeId, reason: String(error) };
      env.log.log('info', 'asking a node that rejoined to announce its pages failed', fields);
      return [];
    }
  }

  /**
   * Throws `InvariantError` unless the remembered nodes are within their limit, and nothing waits after {@link stop}.
   */
  verify(): void {
    assertAtMost('lost statements: nodes', this.#dropped.size, MEMBERS_MAX_COUNT);
    this.#asked.verify();
  }
}
