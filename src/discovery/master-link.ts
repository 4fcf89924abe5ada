import type { Environment } from '../base/environment.js';
import { MeshCacheError } from '../base/errors.js';
import { DISCOVERY_LEAVE_TIMEOUT_MS, DISCOVERY_RETRY_MIN_MS, RPC_CALL_TIMEOUT_MS } from '../base/limits.js';
import type { Endpoint } from '../base/network.js';
import type { RpcClient } from '../rpc/client.js';
import type { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import type { MasterView } from './merge.js';
import { DiscoveryMethod, decodeAnswer, type MasterAnswer, type Roster } from './wire.js';

export interface MasterLinkOptions {
  readonly endpoint: Endpoint;
  readonly self: NodeInfo;
  readonly rpc: RpcClient;
  readonly codec: MessageCodec;
  readonly env: Environment;
  readonly heartbeatIntervalMs: number;
  readonly memberTtlMs: number;
  /** Something may have changed: `view` is new, or there is none any more. */
  onChange(): void;
  /** The master could not be reached; called at every failed attempt. */
  onFailure(error: MeshCacheError): void;
  /** A master that has been there all the time does not know this node: others may have dropped what it had announced. */
  onForgotten(): void;
  /** A newer start of this node is a member. */
  onReplaced(): void;
}

/** Keeps this node registered with one master, and what that master says. Runs from `start` to `stop`. */
export class MasterLink {
  readonly #options: MasterLinkOptions;
  readonly #abort = new AbortController();
  #masterId = '';
  #version = 0;
  #roster: Roster | undefined;
  #ageMs = 0;
  #wasRegistered = false;
  #isRegistering = false;
  #isRegistered = false;
  #retryMs = DISCOVERY_RETRY_MIN_MS;

  constructor(options: MasterLinkOptions) {
    this.#options = options;
  }

  get endpoint(): Endpoint {
    return this.#options.endpoint;
  }

  /** What the master said last; undefined while it does not answer. */
  get view(): MasterView | undefined {
    if (this.#roster === undefined || !this.#isRegistered) return undefined;
    return { ...this.#roster, isMature: this.#ageMs >= this.#options.memberTtlMs };
  }

  start(): void {
    void this.#run();
  }

  /** Says good-bye where there is a master to say it to; takes at most DISCOVERY_LEAVE_TIMEOUT_MS. */
  async stop(): Promise<void> {
    // A register under way may count already, whatever becomes of its answer; what is sent after it comes after it.
    const mayBeMember = this.#isRegistered || this.#isRegistering;
    this.#abort.abort();
    this.#isRegistered = false;
    if (!mayBeMember) return;
    const { rpc, endpoint } = this.#options;
    const leave = { timeoutMs: DISCOVERY_LEAVE_TIMEOUT_MS };
    await rpc.call(endpoint, DiscoveryMethod.leave, this.#identity(), leave).catch(() => {});
  }

  async #run(): Promise<void> {
    while (!this.#abort.signal.aborted) {
      try {
        if (this.#isRegistered) await this.#heartbeat();
        else await this.#register();
      } catch (error) {
        if (this.#abort.signal.aborted) return;
        await this.#failed(error);
      }
    }
  }

  async #register(): Promise<void> {
    this.#isRegistering = true;
    const answer = await this.#call(DiscoveryMethod.register, { node: this.#options.self.toDict() }, 0).finally(() => {
      this.#isRegistering = false;
    });
    if (answer.status !== 'ok' || answer.roster === undefined) {
      if (answer.status === 'replaced') this.#options.onReplaced();
      await this.#pause(this.#options.heartbeatIntervalMs);
      return;
    }
    const isForgotten = this.#wasRegistered && answer.ageMs >= this.#options.memberTtlMs;
    this.#wasRegistered = true;
    this.#isRegistered = true;
    this.#retryMs = DISCOVERY_RETRY_MIN_MS;
    this.#take(answer);
    if (isForgotten) this.#options.onForgotten();
  }

  async #heartbeat(): Promise<void> {
    const waitMs = this.#options.heartbeatIntervalMs;
    const asked = { ...this.#identity(), master_id: this.#masterId, version: this.#version, wait_ms: waitMs };
    const { clock } = this.#options.env;
    const askedMs = clock.nowMs();
    const answer = await this.#call(DiscoveryMethod.heartbeat, asked, waitMs);
    if (answer.status === 'ok') {
      this.#take(answer);
      // Whatever makes a master answer at once without news, it is not asked in a tight loop.
      const isEarly = answer.roster === undefined && clock.nowMs() - askedMs < DISCOVERY_RETRY_MIN_MS;
      if (isEarly) await this.#pause(DISCOVERY_RETRY_MIN_MS);
      return;
    }
    this.#isRegistered = false;
    this.#options.onChange();
  }

  async #call(method: string, params: object, waitMs: number): Promise<MasterAnswer> {
    const { rpc, endpoint, codec } = this.#options;
    const value = await rpc.call(endpoint, method, params, {
      timeoutMs: waitMs + RPC_CALL_TIMEOUT_MS,
      signal: this.#abort.signal,
      probe: true,
      keepAlive: waitMs === 0,
    });
    return decodeAnswer(codec, value);
  }

  #take(answer: MasterAnswer): void {
    if (this.#abort.signal.aborted) return;
    this.#masterId = answer.masterId;
    this.#version = answer.version;
    this.#ageMs = answer.ageMs;
    if (answer.roster !== undefined) this.#roster = answer.roster;
    this.#options.onChange();
  }

  async #failed(error: unknown): Promise<void> {
    const { env, heartbeatIntervalMs } = this.#options;
    const hadMaster = this.#isRegistered;
    this.#isRegistered = false;
    if (hadMaster) this.#options.onChange();
    const known = error instanceof MeshCacheError ? error : new MeshCacheError('ERR_REMOTE', String(error));
    this.#options.onFailure(known);
    // Nodes that lost the same master do not all come back in the same millisecond.
    const jitter = 0.5 + env.random.u32() / 2 ** 32;
    await this.#pause(this.#retryMs * jitter);
    this.#retryMs = Math.min(this.#retryMs * 2, heartbeatIntervalMs);
  }

  /** Ends early when the link is stopped. */
  #pause(delayMs: number): Promise<void> {
    const { signal } = this.#abort;
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        signal.removeEventListener('abort', done);
        resolve();
      };
      const cancel = this.#options.env.clock.after(delayMs, done);
      signal.addEventListener('abort', done);
      if (signal.aborted) done();
    });
  }

  #identity(): { node_id: string; incarnation: number } {
    const { nodeId, incarnation } = this.#options.self;
    return { node_id: nodeId, incarnation };
  }
}
