import { Cancellation, type CancelSignal } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import { INTRODUCTION_TIMEOUT_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { askEach, askMember, shownMembers, startIn } from './member-questions.js';

/** The call that a member answers once it knows this incarnation of the caller. */
const METHOD = 'node.known';

export interface IntroductionOptions {
  readonly nodeId: string;
  readonly rpc: Pick<RpcClient, 'call'>;
  readonly env: Environment;
  /** The live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo>;
}

/**
 * Finds out when all members know a node that has just joined. Until then the node must not be used, because members
 * tell sets and deletes only to the members that they know.
 */
export class Introduction {
  readonly #options: IntroductionOptions;
  /** Pending calls of other nodes, answered when this node knows the caller. */
  readonly #waiting = new Set<() => void>();
  readonly #stopped = new Cancellation();

  constructor(options: IntroductionOptions) {
    this.#options = options;
  }

  /** Registers the handler for other nodes' calls. */
  attach(server: RpcServer): void {
    server.handle(METHOD, (params, { signal }) => {
      const { nodeId, incarnation } = startIn(params, METHOD);
      return this.#answer(() => this.#options.members().get(nodeId)?.incarnation === incarnation, signal);
    });
  }

  /** Answers the calls of nodes that have become members. Called when all of this node follows the change. */
  membersChanged(): void {
    for (const check of [...this.#waiting]) check();
  }

  /**
   * Resolves when each member has said that it knows this incarnation of this node, fails to answer, or has left; after
   * INTRODUCTION_TIMEOUT_MS in any case. Never rejects.
   */
  async made(): Promise<void> {
    const { env, members, nodeId, rpc } = this.#options;
    const untilMs = env.clock.nowMs() + INTRODUCTION_TIMEOUT_MS;
    const question = { method: METHOD, field: 'known', rpc };
    const ask = async (node: NodeInfo): Promise<boolean> => {
      const timeoutMs = untilMs - env.clock.nowMs();
      if (timeoutMs <= 0 || this.#stopped.aborted) return false;
      const start = { nodeId, incarnation: members().get(nodeId)?.incarnation };
      return askMember(question, node, start, { timeoutMs, signal: this.#stopped });
    };
    const knowing = await askEach(this.#eachOther(), ask);
    const known = new Set([nodeId, ...knowing.map((node) => node.nodeId)]);
    const left = [...members().keys()].filter((id) => !known.has(id));
    if (left.length === 0 || this.#stopped.aborted) return;
    env.log.log('warn', 'node started before all members know it: they may not tell it at once what they set', {
      node_id: nodeId,
      ...shownMembers(left),
    });
  }

  /** Ends all waits. */
  stop(): void {
    this.#stopped.abort();
    this.membersChanged();
  }

  /** Returns each other member once, including members that join meanwhile. */
  #eachOther(): () => NodeInfo | undefined {
    const { members, nodeId } = this.#options;
    const given = new Set([nodeId]);
    let seen = members();
    let rest = seen.values();
    return () => {
      if (members() !== seen) {
        seen = members();
        rest = seen.values();
      }
      for (let step = rest.next(); step.done !== true; step = rest.next()) {
        if (given.has(step.value.nodeId)) continue;
        given.add(step.value.nodeId);
        return step.value;
      }
      return undefined;
    };
  }

  /** Resolves as soon as `isKnown`; with the current state when the time is over or the caller has gone. */
  #answer(isKnown: () => boolean, signal: CancelSignal): { known: boolean } | Promise<{ known: boolean }> {
    if (isKnown()) return { known: true };
    return new Promise((resolve) => {
      const end = (): void => {
        cancel();
        this.#waiting.delete(check);
        signal.removeEventListener('abort', end);
        resolve({ known: isKnown() });
      };
      const check = (): void => {
        if (isKnown() || this.#stopped.aborted) end();
      };
      const cancel = this.#options.env.clock.after(INTRODUCTION_TIMEOUT_MS, end);
      signal.addEventListener('abort', end);
      this.#waiting.add(check);
    });
  }
}
