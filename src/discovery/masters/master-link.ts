import { Cancellation } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { MeshCacheError, ProtocolError } from '../../base/errors.js';
import { DISCOVERY_LEAVE_TIMEOUT_MS, DISCOVERY_RETRY_MIN_MS, RPC_CALL_TIMEOUT_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { MessageCodec } from '../../rpc/message.js';
import type { NodeInfo } from '../../types.js';
import { isSameInfo } from '../members/member-table.js';
import { type ClusterSettings, encodeSettings, type Refusal } from '../messages/cluster-settings.js';
import {
  DiscoveryMethod,
  decodeAnswer,
  type MasterAnswer,
  type OwnRoster,
  type RosterNews,
  rosterAfter,
} from '../messages/wire.js';
import type { MasterView } from './merge.js';

export interface MasterLinkOptions {
  readonly endpoint: Endpoint;
  /** The own node as it is now. */
  self(): NodeInfo;
  /** What its master must have alike; default: nothing is said of it. */
  readonly settings?: ClusterSettings | undefined;
  readonly rpc: RpcClient;
  readonly codec: MessageCodec;
  readonly env: Environment;
  readonly heartbeatIntervalMs: number;
  readonly memberTtlMs: number;
  /** `view` is another one, or there is none any more. */
  onChange(): void;
  /** What is known of a node already: a record that says the same is not kept a second time. */
  known?(nodeId: string): NodeInfo | undefined;
  /** The master could not be reached; called at every failed attempt. */
  onFailure(error: MeshCacheError): void;
  /** Whether this node is registered with the master of that id by another link, under another name of its host. */
  isElsewhere(masterId: string): boolean;
  /**
   * A master that has been there all the time does not know this node any more. Called before it is told anew. True: call
   * `onForgotten` after that.
   */
  onUnknown(): boolean;
  onForgotten(): void;
  /** Whether a newer start of this node is a member instead of it. */
  onReplaced(isReplaced: boolean): void;
  /** The master refuses this node, whose settings differ from its own. Called at every attempt. */
  onRefused?(refusal: Refusal): void;
}

/** Keeps this node registered with one master, and what that master says. Runs from `start` to `stop`. */
export class MasterLink {
  readonly #options: MasterLinkOptions;
  readonly #abort = new Cancellation();
  #masterId = '';
  #version = 0;
  #roster: OwnRoster | undefined;
  /** Of whose records the roster has others since {@link takeChanged}; undefined: it is another one as a whole. */
  #changed: Set<string> | undefined;
  #ageMs = 0;
  #isRegistering = false;
  #isRegistered = false;
  /** Was registered when the master went out of reach: it may still know this node. */
  #mayBeKnown = false;
  #isForgotten = false;
  #refusal: Refusal | undefined;
  #hasOutcome = false;
  #heardMs = Number.NEGATIVE_INFINITY;
  /** When it answered last, or this link was started. */
  #answeredMs: number;
  #retryMs = DISCOVERY_RETRY_MIN_MS;

  constructor(options: MasterLinkOptions) {
    this.#options = options;
    this.#answeredMs = options.env.clock.nowMs();
  }

  get endpoint(): Endpoint {
    return this.#options.endpoint;
  }

  /** What the master said last, until it says something else; undefined while it does not answer. */
  get view(): MasterView | undefined {
    if (this.#roster === undefined || !this.hasView) return undefined;
    const { members, gone } = this.#roster;
    return { members, gone, isMature: this.#isMature };
  }

  get hasView(): boolean {
    return this.#roster !== undefined && this.#isRegistered;
  }

  get #isMature(): boolean {
    return this.#ageMs >= this.#options.memberTtlMs;
  }

  /** Ids of those who have come, gone or changed in the view since the last call; undefined: it is not known of whom that is true. */
  takeChanged(): ReadonlySet<string> | undefined {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  /** Tells this start of the master from others; empty before its first answer. */
  get masterId(): string {
    return this.#masterId;
  }

  /** When it was asked what it answered last as one that knows this node: until then it has surely heard of it. */
  get heardMs(): number {
    return this.#heardMs;
  }

  /** Why this master refuses the node, when it did so last; undefined when it takes the node or does not answer. */
  get refusal(): Refusal | undefined {
    return this.#refusal;
  }

  /** Whether a first attempt to register is over, with whatever result. */
  get hasOutcome(): boolean {
    return this.#hasOutcome;
  }

  /** For how long it has not answered as a master of this node's cluster. */
  get silentMs(): number {
    return this.#options.env.clock.nowMs() - this.#answeredMs;
  }

  start(): void {
    this.#answeredMs = this.#options.env.clock.nowMs();
    void this.#run();
  }

  /** Ends without a word: there is no master any more. */
  drop(): void {
    this.#abort.abort();
    this.#isRegistered = false;
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
    const { clock } = this.#options.env;
    while (!this.#abort.aborted) {
      const startedMs = clock.nowMs();
      try {
        if (this.#isRegistered) await this.#heartbeat(this.#options.heartbeatIntervalMs);
        else if (this.#mayBeKnown) await this.#heartbeat(0);
        else await this.#register();
      } catch (error) {
        if (this.#abort.aborted) return;
        await this.#failed(error, clock.nowMs() - startedMs);
      }
    }
  }

  async #register(): Promise<void> {
    const { self, settings, env, heartbeatIntervalMs } = this.#options;
    const { onReplaced, onForgotten, isElsewhere } = this.#options;
    this.#isRegistering = true;
    const askedMs = env.clock.nowMs();
    const info = self();
    const said = settings === undefined ? {} : { settings: encodeSettings(settings) };
    const answer = await this.#call(DiscoveryMethod.register, { node: info.toDict(), rows: true, ...said }, 0).finally(
      () => {
        this.#isRegistering = false;
      },
    );
    this.#hasOutcome = true;
    this.#refusal = answer.refusal;
    if (answer.refusal !== undefined) {
      if (!this.#abort.aborted) this.#options.onRefused?.(answer.refusal);
      await this.#pause(heartbeatIntervalMs);
      return;
    }
    // What was asked for an earlier start of this node says nothing of the present one.
    const isOfNow = info.incarnation === self().incarnation;
    if (answer.status !== 'ok' || answer.roster === undefined) {
      if (answer.status === 'replaced' && isOfNow) onReplaced(true);
      if (isOfNow) await this.#pause(heartbeatIntervalMs);
      return;
    }
    if (isOfNow) onReplaced(false);
    if (isElsewhere(answer.masterId)) return this.#standBy(answer);
    this.#isRegistered = true;
    this.#take(answer, askedMs, true);
    if (this.#isForgotten) onForgotten();
    this.#isForgotten = false;
  }

  async #heartbeat(waitMs: number): Promise<void> {
    const { clock } = this.#options.env;
    const askedMs = clock.nowMs();
    const identity = this.#identity();
    const params = {
      node_id: identity.node_id,
      incarnation: identity.incarnation,
      master_id: this.#masterId,
      version: this.#version,
      changes: true,
      rows: true,
      wait_ms: waitMs,
    };
    const answer = await this.#call(DiscoveryMethod.heartbeat, params, waitMs);
    this.#mayBeKnown = false;
    if (answer.status === 'ok') {
      if (!this.#isRegistered && this.#options.isElsewhere(answer.masterId)) return this.#standBy(answer);
      const isNewView = !this.#isRegistered;
      this.#isRegistered = true;
      this.#take(answer, askedMs, isNewView);
      // Whatever makes a master answer at once without news, it is not asked in a tight loop.
      const isEarly = waitMs > 0 && answer.roster === undefined && clock.nowMs() - askedMs < DISCOVERY_RETRY_MIN_MS;
      if (isEarly) await this.#pause(DISCOVERY_RETRY_MIN_MS);
      return;
    }
    this.#isRegistered = false;
    const isAboutNow = identity.incarnation === this.#identity().incarnation;
    if (answer.status === 'unknown' && isAboutNow && answer.ageMs >= this.#options.memberTtlMs) {
      this.#isForgotten = this.#options.onUnknown();
    }
    this.#options.onChange();
  }

  async #call(method: string, params: object, waitMs: number): Promise<MasterAnswer> {
    const { rpc, endpoint, codec } = this.#options;
    const value = await rpc.call(endpoint, method, params, {
      timeoutMs: waitMs + RPC_CALL_TIMEOUT_MS,
      signal: this.#abort,
      probe: true,
      keepAlive: waitMs === 0,
    });
    const answer = decodeAnswer(codec, value);
    if (answer.refusal === undefined) this.#answeredMs = this.#options.env.clock.nowMs();
    return answer;
  }

  /** `isNewView`: there was none before. */
  #take(answer: MasterAnswer, askedMs: number, isNewView: boolean): void {
    if (this.#abort.aborted) return;
    this.#heardMs = askedMs;
    const wasMature = this.#isMature;
    this.#keep(answer);
    if (isNewView || answer.roster !== undefined || this.#isMature !== wasMature) this.#options.onChange();
  }

  #keep({ masterId, version, ageMs, roster }: MasterAnswer): void {
    this.#retryMs = DISCOVERY_RETRY_MIN_MS;
    if (roster !== undefined) {
      const before = masterId === this.#masterId ? this.#roster : undefined;
      const after = rosterAfter(before, this.#shared(roster), this.#version);
      // No version that there is: the whole list comes next.
      this.#version = 0;
      if (after === undefined) throw new ProtocolError('discovery: changes of another list than this node has');
      this.#roster = after;
      if (before === undefined || roster.base === undefined) this.#changed = undefined;
      else for (const nodeId of [...roster.members.keys(), ...roster.removed]) this.#changed?.add(nodeId);
    }
    this.#masterId = masterId;
    this.#version = version;
    this.#ageMs = ageMs;
  }

  #shared(roster: RosterNews): RosterNews {
    const { known } = this.#options;
    if (known === undefined) return roster;
    for (const [nodeId, info] of roster.members) {
      const same = known(nodeId);
      if (same !== undefined && isSameInfo(same, info)) roster.members.set(nodeId, same);
    }
    return roster;
  }

  /** Another link speaks to this master; this one asks now and then whether it still has to. */
  async #standBy(answer: MasterAnswer): Promise<void> {
    this.#keep(answer);
    this.#mayBeKnown = true;
    await this.#pause(this.#options.heartbeatIntervalMs);
  }

  async #failed(error: unknown, afterMs: number): Promise<void> {
    const { env, heartbeatIntervalMs } = this.#options;
    const hadMaster = this.#isRegistered;
    this.#mayBeKnown ||= hadMaster;
    this.#isRegistered = false;
    this.#hasOutcome = true;
    this.#refusal = undefined;
    if (hadMaster) this.#options.onChange();
    const known = error instanceof MeshCacheError ? error : new MeshCacheError('ERR_REMOTE', String(error));
    this.#options.onFailure(known);
    // Nodes that lost the same master do not all come back in the same millisecond, but all within a heartbeat interval.
    const jitter = 0.5 + env.random.u32() / 2 ** 33;
    const spentMs = hadMaster ? 0 : afterMs;
    await this.#pause(Math.max(DISCOVERY_RETRY_MIN_MS, this.#retryMs * jitter - spentMs));
    this.#retryMs = Math.min(this.#retryMs * 2, heartbeatIntervalMs);
  }

  /** Ends early when the link is stopped. */
  #pause(delayMs: number): Promise<void> {
    const signal = this.#abort;
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
    const { nodeId, incarnation } = this.#options.self();
    return { node_id: nodeId, incarnation };
  }
}
