import { Cancellation, type CancelSignal } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import { ProtocolError } from '../../base/errors.js';
import { INTRODUCTION_TIMEOUT_MS, JOINING_IN_FLIGHT_MAX_COUNT, LOGGED_IDS_MAX_COUNT } from '../../base/limits.js';
import { isNodeId } from '../../directory/messages/location-columns.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';

/** The call that a member answers when it knows this start of the caller. */
const METHOD = 'node.known';

export interface IntroductionOptions {
  readonly nodeId: string;
  readonly rpc: Pick<RpcClient, 'call'>;
  readonly env: Environment;
  /** The live nodes by id, this one included. */
  members(): ReadonlyMap<string, NodeInfo>;
}

/**
 * Finds out when all members know a node that has just joined. Until then it must not be used: what others set or
 * delete they tell the members that they know.
 */
export class Introduction {
  readonly #options: IntroductionOptions;
  /** Calls of other nodes that are answered when this node knows the caller. */
  readonly #waiting = new Set<() => void>();
  readonly #stopped = new Cancellation();

  constructor(options: IntroductionOptions) {
    this.#options = options;
  }

  /** Answers other nodes. */
  attach(server: RpcServer): void {
    server.handle(METHOD, (params, { signal }) => {
      const { node_id: nodeId, incarnation } = (params ?? {}) as Readonly<Record<string, unknown>>;
      if (!isNodeId(nodeId) || !Number.isSafeInteger(incarnation))
        throw new ProtocolError(`${METHOD}: needs a node_id and an incarnation`);
      return this.#answer(() => this.#options.members().get(nodeId)?.incarnation === incarnation, signal);
    });
  }

  /** Answers the calls of nodes that have become members. Called when all of this node goes by the change. */
  membersChanged(): void {
    for (const check of [...this.#waiting]) check();
  }

  /**
   * Resolves when each member has said that it knows this start of this node, or does not answer, or has left; after
   * INTRODUCTION_TIMEOUT_MS in any case. Never rejects.
   */
  async made(): Promise<void> {
    const { env, members, nodeId } = this.#options;
    const untilMs = env.clock.nowMs() + INTRODUCTION_TIMEOUT_MS;
    const asked = new Set([nodeId]);
    const silent: string[] = [];
    const askNext = async (): Promise<void> => {
      for (let node = this.#next(asked); node !== undefined; node = this.#next(asked)) {
        asked.add(node.nodeId);
        const leftMs = untilMs - env.clock.nowMs();
        if (leftMs <= 0 || this.#stopped.aborted) return;
        if (!(await this.#ask(node, leftMs))) silent.push(node.nodeId);
      }
    };
    await Promise.all(Array.from({ length: JOINING_IN_FLIGHT_MAX_COUNT }, askNext));
    silent.push(...[...members().keys()].filter((id) => !asked.has(id)));
    const left = silent.filter((id) => members().has(id));
    if (left.length === 0 || this.#stopped.aborted) return;
    env.log.log('warn', 'node started before all members know it: they may not tell it at once what they set', {
      node_id: nodeId,
      nodes: left.length,
      first: left.slice(0, LOGGED_IDS_MAX_COUNT).join(', '),
    });
  }

  /** Ends waiting. */
  stop(): void {
    this.#stopped.abort();
    this.membersChanged();
  }

  /** A member that was not asked yet. */
  #next(asked: ReadonlySet<string>): NodeInfo | undefined {
    for (const node of this.#options.members().values()) if (!asked.has(node.nodeId)) return node;
    return undefined;
  }

  async #ask(node: NodeInfo, timeoutMs: number): Promise<boolean> {
    const { rpc, nodeId, members } = this.#options;
    const endpoint = { host: node.controlHost, port: node.controlPort };
    const params = { node_id: nodeId, incarnation: members().get(nodeId)?.incarnation };
    try {
      const answer = await rpc.call(endpoint, METHOD, params, { timeoutMs, signal: this.#stopped });
      return (answer as { readonly known?: unknown } | null)?.known === true;
    } catch {
      // A member that is silent is not waited for.
      return false;
    }
  }

  /** Resolves as soon as `isKnown`, or with what is the case when the time is over or the caller has gone. */
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
