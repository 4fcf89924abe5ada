import { assert, assertAtMost } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { ANNOUNCE_RETRY_MAX_MS, MEMBERS_MAX_COUNT, NODE_ID_MAX_BYTES, RPC_RETRY_AFTER_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { MemberChange } from './member-log.js';

const METHOD = 'directory.announce';
/** A node that does not answer is asked so often; after that anti-entropy has to do. */
const ATTEMPTS_MAX_COUNT = 8;

export interface LostStatementsOptions {
  readonly nodeId: string;
  readonly rpc: RpcClient;
  readonly env: Environment;
  endpointOf(nodeId: string): Endpoint | undefined;
  /** Whether this start of a node is a member now. */
  isLive(nodeId: string, incarnation: number): boolean;
}

/**
 * Asks nodes to announce their pages to this one again that had gone, as this node saw it, and are there as if nothing had happened: its
 * shard has dropped what they had stated, and they need not know. It happens when this node hears for a while only from a master that
 * they do not reach.
 */
export class LostStatements {
  readonly #options: LostStatementsOptions;
  /** Node id -> the start whose statements were dropped; the oldest first. */
  readonly #dropped = new Map<string, number>();
  readonly #cancels = new Set<() => void>();
  #stopped = false;

  constructor(options: LostStatementsOptions) {
    this.#options = options;
  }

  /** `announceTo`: another node has lost what this one had stated there. */
  static handle(server: RpcServer, announceTo: (ownerId: string) => void): void {
    server.handle(METHOD, (params) => {
      const { node_id: nodeId } = params as { readonly node_id?: unknown };
      const isId = typeof nodeId === 'string' && nodeId !== '' && Buffer.byteLength(nodeId) <= NODE_ID_MAX_BYTES;
      if (!isId) throw new ProtocolError('directory.announce: node_id');
      announceTo(nodeId);
      return {};
    });
  }

  membersChanged({ before, after, changed }: MemberChange): void {
    for (const nodeId of changed) {
      const lost = before.get(nodeId);
      if (lost === undefined || after.has(nodeId)) continue;
      this.#dropped.delete(nodeId);
      this.#dropped.set(nodeId, lost.incarnation);
    }
    for (const [nodeId, incarnation] of this.#dropped) {
      const isBack = after.get(nodeId)?.incarnation === incarnation;
      if (isBack) void this.#ask(nodeId, incarnation);
      if (after.has(nodeId) || this.#dropped.size > MEMBERS_MAX_COUNT) this.#dropped.delete(nodeId);
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const cancel of this.#cancels) cancel();
  }

  async #ask(nodeId: string, incarnation: number): Promise<void> {
    const { rpc, env, endpointOf, isLive } = this.#options;
    for (let attempt = 1; attempt <= ATTEMPTS_MAX_COUNT; attempt++) {
      const endpoint = endpointOf(nodeId);
      if (this.#stopped || endpoint === undefined || !isLive(nodeId, incarnation)) return;
      try {
        await rpc.call(endpoint, METHOD, { node_id: this.#options.nodeId });
        return;
      } catch (error) {
        env.log.log('info', 'a node that has come back was not told what is lost here', {
          node: nodeId,
          attempts: attempt,
          reason: String(error),
        });
      }
      await this.#pause(Math.min(RPC_RETRY_AFTER_MS * 2 ** (attempt - 1), ANNOUNCE_RETRY_MAX_MS));
    }
  }

  #pause(delayMs: number): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.#cancels.delete(done);
        resolve();
      };
      const cancel = this.#options.env.clock.after(delayMs, done);
      this.#cancels.add(done);
    });
  }

  /** Throws `InvariantError` unless no more is remembered than may be, and nothing waits once it is stopped. */
  verify(): void {
    assertAtMost('lost statements: nodes', this.#dropped.size, MEMBERS_MAX_COUNT);
    assert(
      !this.#stopped || this.#cancels.size === 0,
      () => `lost statements: ${this.#cancels.size} pauses after the end`,
    );
  }
}
