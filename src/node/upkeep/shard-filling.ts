import type { Environment } from '../../base/environment/environment.js';
import { SHARD_FILLING_POLL_MS, SHARD_FILLING_TIMEOUT_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { askEach, askMember, shownMembers, startIn } from './member-questions.js';

/** The call that asks a node whether it has announced all its pages to the caller. */
const METHOD = 'directory.announced';

export interface ShardFillingOptions {
  readonly nodeId: string;
  readonly rpc: Pick<RpcClient, 'call'>;
  readonly env: Environment;
  /** The live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo>;
  /** Whether a discovery master has listed the members; filling waits until then. */
  isJoined(): boolean;
}

/**
 * Finds out when this node's shard is complete: when every node that was a member before this one has announced its
 * pages to it, or has left.
 */
export class ShardFilling {
  readonly #options: ShardFillingOptions;
  #filled: Promise<boolean> | undefined;
  #endPause: () => void = () => {};
  #stopped = false;

  constructor(options: ShardFillingOptions) {
    this.#options = options;
  }

  /**
   * Handles other nodes' calls; `hasTold`: whether an incarnation of an owner was told of all pages, and of all void
   * ones.
   */
  static handle(server: RpcServer, hasTold: (ownerId: string, incarnation: number) => boolean): void {
    server.handle(METHOD, (params) => {
      const { nodeId, incarnation } = startIn(params, METHOD);
      return { complete: hasTold(nodeId, incarnation) };
    });
  }

  /**
   * Resolves with true when the shard is complete; with false after SHARD_FILLING_TIMEOUT_MS, or when the node is
   * stopped. Never rejects.
   */
  filled(): Promise<boolean> {
    this.#filled ??= this.#wait().then((isComplete) => {
      // A later call waits again.
      if (!isComplete) this.#filled = undefined;
      return isComplete;
    });
    return this.#filled;
  }

  /** Ends all waits. */
  stop(): void {
    this.#stopped = true;
    this.#endPause();
  }

  async #wait(): Promise<boolean> {
    const { env, isJoined, members, nodeId } = this.#options;
    const untilMs = env.clock.nowMs() + SHARD_FILLING_TIMEOUT_MS;
    const isOver = (): boolean => this.#stopped || env.clock.nowMs() >= untilMs;
    while (!isJoined() && !isOver()) await this.#pause();
    let pending: readonly NodeInfo[] = [];
    let announced = new Set<string>();
    let ownIncarnation: number | undefined;
    const firstIds = new Set(members().keys());
    while (!isOver()) {
      const own = members().get(nodeId)?.incarnation;
      // Under a new incarnation, the others had dropped this node and announce everything to it again.
      if (own !== ownIncarnation) announced = new Set();
      ownIncarnation = own;
      const isBefore = (node: NodeInfo): boolean => firstIds.has(node.nodeId) || node.incarnation <= (own ?? 0);
      pending = [...members().values()].filter(
        (node) => node.nodeId !== nodeId && isBefore(node) && !announced.has(startOf(node)),
      );
      if (pending.length === 0) return true;
      const waiting = [...pending];
      const told = await askEach(
        () => (this.#stopped ? undefined : waiting.pop()),
        (node) => this.#ask(node, own ?? 0),
      );
      for (const node of told) announced.add(startOf(node));
      if (pending.some((node) => !announced.has(startOf(node)))) await this.#pause();
    }
    if (!this.#stopped) this.#logMissing(pending.filter((node) => !announced.has(startOf(node))));
    return false;
  }

  /** Whether a node has announced everything. A node that does not answer is asked again until it leaves. */
  #ask(node: NodeInfo, incarnation: number): Promise<boolean> {
    const { rpc, nodeId } = this.#options;
    return askMember({ method: METHOD, field: 'complete', rpc }, node, { nodeId, incarnation });
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#options.env.clock.after(SHARD_FILLING_POLL_MS, resolve, { keepAlive: true });
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }

  #logMissing(nodes: readonly NodeInfo[]): void {
    const { env, isJoined, nodeId } = this.#options;
    env.log.log('warn', 'directory shard incomplete: not all nodes have announced their pages in time', {
      node_id: nodeId,
      is_joined: isJoined(),
      ...shownMembers(nodes.map((node) => node.nodeId)),
    });
  }
}

/** Identifies one incarnation of a node. */
function startOf({ nodeId, incarnation }: NodeInfo): string {
  return `${incarnation} ${nodeId}`;
}
