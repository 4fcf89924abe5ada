import { assert, assertAtMost } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { ANNOUNCE_RETRY_MAX_MS, MEMBERS_MAX_COUNT, NODE_ID_MAX_BYTES, RPC_RETRY_AFTER_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { MemberChange } from './member-log.js';

/** The call that asks a node to announce all its pages to the caller again. */
const METHOD = 'directory.announce';
/** Attempts to ask a node. After that, anti-entropy repairs what is missing. */
const ATTEMPTS_MAX_COUNT = 8;

export interface LostStatementsOptions {
  readonly nodeId: string;
  readonly rpc: RpcClient;
  readonly env: Environment;
  endpointOf(nodeId: string): Endpoint | undefined;
  /** Whether this start of a node is a member. */
  isLive(nodeId: string, incarnation: number): boolean;
}

/**
 * Asks a node that rejoined with the same incarnation to announce its pages to this one again. This node's shard dropped what the other node had
 * stated, and the other node may not know that it was ever gone: for a while, this node heard only from a master that the other one did not
 * reach. Or it heard of a former start of the other node once more, from a master that did not know the present one. A node that has
 * started anew after its clock went back is asked, too: until its former start had gone here, its statements were refused as older than that one's.
 */
export class LostStatements {
  readonly #options: LostStatementsOptions;
  /** Node id -> its start that was the member before the present one, or before it went: its statements were dropped. The earliest change comes first. */
  readonly #dropped = new Map<string, number>();
  readonly #cancels = new Set<() => void>();
  #stopped = false;

  constructor(options: LostStatementsOptions) {
    this.#options = options;
  }

  /** Answers nodes that have lost what this one had stated: `announceTo` announces all pages to such a node again. */
  static handle(server: RpcServer, announceTo: (ownerId: string) => void): void {
    server.handle(METHOD, (params) => {
      const { node_id: nodeId } = params as { readonly node_id?: unknown };
      const isId = typeof nodeId === 'string' && nodeId !== '' && Buffer.byteLength(nodeId) <= NODE_ID_MAX_BYTES;
      if (!isId) throw new ProtocolError(`${METHOD}: node_id must be text of 1 to ${NODE_ID_MAX_BYTES} bytes`);
      announceTo(nodeId);
      return {};
    });
  }

  membersChanged({ before, after, changed }: MemberChange): void {
    for (const nodeId of changed) {
      const incarnation = after.get(nodeId)?.incarnation;
      const lost = before.get(nodeId)?.incarnation;
      if (incarnation !== undefined && incarnation === lost) continue;
      const known = Math.max(lost ?? 0, this.#dropped.get(nodeId) ?? 0);
      if (incarnation !== undefined && incarnation <= known) void this.#ask(nodeId, incarnation);
      this.#dropped.delete(nodeId);
      if (lost !== undefined) this.#dropped.set(nodeId, lost);
    }
    for (const nodeId of this.#dropped.keys()) {
      if (this.#dropped.size <= MEMBERS_MAX_COUNT) break;
      this.#dropped.delete(nodeId);
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
        env.log.log('info', 'asking a node that rejoined to announce its pages failed', {
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

  /** Throws `InvariantError` unless the remembered nodes are within their limit, and nothing waits after {@link stop}. */
  verify(): void {
    assertAtMost('lost statements: nodes', this.#dropped.size, MEMBERS_MAX_COUNT);
    assert(
      !this.#stopped || this.#cancels.size === 0,
      () => `lost statements: ${this.#cancels.size} pauses after the end`,
    );
  }
}
