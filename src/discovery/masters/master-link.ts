import { Cancellation } from '../../base/concurrency/cancellation.js';
import type { SharedClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { MeshCacheError, ProtocolError } from '../../base/errors.js';
import { DISCOVERY_LEAVE_TIMEOUT_MS, DISCOVERY_RETRY_MIN_MS, RPC_CALL_TIMEOUT_MS } from '../../base/limits.js';
import type { RpcClient } from '../../rpc/client.js';
import type { MessageCodec } from '../../rpc/message.js';
import type { NodeInfo } from '../../types.js';
import { type ClusterSettings, encodeSettings, type Refusal } from '../messages/cluster-settings.js';
import { isSameInfo } from '../messages/member-table.js';
import {
  clockFields,
  DiscoveryMethod,
  decodeAnswer,
  decodeUnaware,
  type MasterAnswer,
  type OwnRoster,
  type RosterNews,
  rosterAfter,
} from '../messages/wire.js';
import type { MasterView } from './merging.js';

interface MasterLinkOptions {
  readonly endpoint: Endpoint;
  /** Returns the present record of this node. */
  self(): NodeInfo;
  /** Settings that the master must share; default: none are sent. */
  readonly settings?: ClusterSettings | undefined;
  /** The clock of this node; undefined: none is sent. */
  readonly clock?: SharedClock | undefined;
  /** Whether this node takes the date that this master sends for the date of the cluster; default: always. */
  tellsDate?(masterId: string): boolean;
  /** Called when the clock has been given the date of the cluster. */
  onDate?(): void;
  readonly rpc: RpcClient;
  readonly codec: MessageCodec;
  readonly env: Environment;
  readonly heartbeatIntervalMs: number;
  readonly memberTtlMs: number;
  /** Number of members that this node knows while a master answers, itself included; default: 1. */
  membersCount?(): number;
  /** Called when `view` has changed or is gone. */
  onChange(): void;
  /** Resolves when this node goes by the views that it has; undefined: it does. Default: it always does. */
  followed?(): Promise<void> | undefined;
  /** The known record of a node, so that an equal record is not stored twice. */
  known?(nodeId: string): NodeInfo | undefined;
  /** Called after every failed attempt to reach the master. */
  onFailure(error: MeshCacheError): void;
  /** Whether another link is registered with the same master under another name of its host. */
  isElsewhere(masterId: string): boolean;
  /**
   * Called when a master that did not restart has forgotten this node, before the node registers again. If it returns
   * true, `onForgotten` follows.
   */
  onUnknown(): boolean;
  onForgotten(): void;
  /** Called when a newer start of this node has become the member, or is no longer. */
  onReplaced(isReplaced: boolean): void;
  /** Called after every attempt that the master refused because of different settings. */
  onRefused?(refusal: Refusal): void;
}

/** Keeps this node registered with one master, and stores the master's view. Runs from `start` to `stop`. */
export class MasterLink {
  readonly #options: MasterLinkOptions;
  readonly #abort = new Cancellation();
  #masterId = '';
  #version = 0;
  #roster: OwnRoster | undefined;
  /** Ids of members that changed since {@link takeChanged}; undefined: the whole roster was replaced. */
  #changed: Set<string> | undefined;
  #ageMs = 0;
  #isRegistering = false;
  #isRegistered = false;
  /** The record that the master took last. */
  #stated: NodeInfo | undefined;
  /** Whether this node was registered when the master became unreachable, so that the master may still know it. */
  #mayBeKnown = false;
  #isForgotten = false;
  #refusal: Refusal | undefined;
  #hasOutcome = false;
  #heardMs = Number.NEGATIVE_INFINITY;
  /** Time of the master's last answer, or of the link's start. */
  #answeredMs: number;
  #retryMs = DISCOVERY_RETRY_MIN_MS;

  constructor(options: MasterLinkOptions) {
    this.#options = options;
    this.#answeredMs = options.env.clock.nowMs();
  }

  get endpoint(): Endpoint {
    return this.#options.endpoint;
  }

  /** The master's latest view; undefined while it does not answer. */
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

  /** Ids of members that joined, left or changed in the view since the last call; undefined: unknown, any may have. */
  takeChanged(): ReadonlySet<string> | undefined {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  /** Id of this start of the master; empty before its first answer. */
  get masterId(): string {
    return this.#masterId;
  }

  /** Time of the last request whose answer showed that the master knows this node. */
  get heardMs(): number {
    return this.#heardMs;
  }

  /** Why this master refuses the node; undefined if it accepts the node or does not answer. */
  get refusal(): Refusal | undefined {
    return this.#refusal;
  }

  /** Whether the first attempt to register has ended, with any result. */
  get hasOutcome(): boolean {
    return this.#hasOutcome;
  }

  /** Milliseconds since the master last answered without refusing this node. */
  get silentMs(): number {
    return this.#options.env.clock.nowMs() - this.#answeredMs;
  }

  start(): void {
    this.#answeredMs = this.#options.env.clock.nowMs();
    void this.#run();
  }

  /** Ends the link without leaving, because the master no longer exists. */
  drop(): void {
    this.#abort.abort();
    this.#isRegistered = false;
  }

  /** Leaves if the master may know this node; takes at most DISCOVERY_LEAVE_TIMEOUT_MS. */
  async stop(): Promise<void> {
    // A registration in progress may have taken effect already; the leave message arrives after it.
    const mayBeMember = this.#isRegistered || this.#isRegistering;
    this.#abort.abort();
    this.#isRegistered = false;
    if (!mayBeMember) return;
    const { rpc, endpoint } = this.#options;
    const leave = { timeoutMs: DISCOVERY_LEAVE_TIMEOUT_MS };
    await rpc.call(endpoint, DiscoveryMethod.leave, this.#identity(), leave).catch(() => {});
  }

  /**
   * Resolves with the members of this start of the master that do not go by a list with this start of the node yet: as
   * soon as all do, and otherwise after `waitMs`. Rejects if the master does not answer.
   */
  async unaware(waitMs: number): Promise<ReadonlySet<string>> {
    const { rpc, endpoint } = this.#options;
    const options = { timeoutMs: waitMs + RPC_CALL_TIMEOUT_MS, signal: this.#abort };
    return decodeUnaware(
      await rpc.call(
        endpoint,
        DiscoveryMethod.known,
        { ...this.#identity(), master_id: this.#masterId, wait_ms: waitMs },
        options,
      ),
    );
  }

  async #run(): Promise<void> {
    const { clock } = this.#options.env;
    while (!this.#abort.aborted) {
      const startedMs = clock.nowMs();
      try {
        // A heartbeat that waits for news says by which list the node goes.
        await this.#options.followed?.();
        if (this.#isRegistered && this.#isStated()) await this.#heartbeat(this.#options.heartbeatIntervalMs);
        else if (this.#mayBeKnown) await this.#heartbeat(0);
        else {
          await this.#register();
          // A master that refuses the node after all says so before others hear of the node.
          if (this.#isRegistered && this.#options.followed?.() !== undefined) await this.#heartbeat(0);
        }
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
    if (answer.refusal !== undefined) return this.#refusedFor(answer.refusal);
    // An answer about an earlier incarnation of this node says nothing about the present one.
    const isOfNow = info.incarnation === self().incarnation;
    if (answer.status !== 'ok' || answer.roster === undefined) {
      if (answer.status === 'replaced' && isOfNow) onReplaced(true);
      if (isOfNow) await this.#pause(heartbeatIntervalMs);
      return;
    }
    if (isOfNow) onReplaced(false);
    if (isElsewhere(answer.masterId)) return this.#standBy(answer);
    this.#isRegistered = true;
    this.#stated = info;
    this.#take(answer, askedMs, true);
    if (this.#isForgotten) onForgotten();
    this.#isForgotten = false;
  }

  /**
   * Whether the master has the present record of this node. If the record is of an earlier start, this is true as well:
   * the next heartbeat shows that the master does not know the new start.
   */
  #isStated(): boolean {
    const now = this.#options.self();
    return this.#stated?.incarnation !== now.incarnation || isSameInfo(this.#stated, now);
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
      // A master that answers at once without news must not be asked in a tight loop.
      const isEarly = waitMs > 0 && answer.roster === undefined && clock.nowMs() - askedMs < DISCOVERY_RETRY_MIN_MS;
      if (isEarly) await this.#pause(DISCOVERY_RETRY_MIN_MS);
      return;
    }
    this.#isRegistered = false;
    this.#refusal = answer.refusal;
    const isAboutNow = identity.incarnation === this.#identity().incarnation;
    if (answer.status === 'unknown' && isAboutNow && answer.ageMs >= this.#options.memberTtlMs) {
      this.#isForgotten = this.#options.onUnknown();
    }
    this.#options.onChange();
    if (answer.refusal !== undefined) await this.#refusedFor(answer.refusal);
  }

  /** Reports a refusal, and waits before the master is asked again. */
  async #refusedFor(refusal: Refusal): Promise<void> {
    if (!this.#abort.aborted) this.#options.onRefused?.(refusal);
    await this.#pause(this.#options.heartbeatIntervalMs);
  }

  async #call(method: string, params: object, waitMs: number): Promise<MasterAnswer> {
    const { rpc, endpoint, codec, clock } = this.#options;
    const value = await rpc.call(
      endpoint,
      method,
      { ...params, ...clockFields(clock), members: this.#options.membersCount?.() ?? 1 },
      {
        timeoutMs: waitMs + RPC_CALL_TIMEOUT_MS,
        signal: this.#abort,
        probe: true,
        keepAlive: waitMs === 0,
      },
    );
    const answer = decodeAnswer(codec, value);
    if (answer.clusterMs !== undefined && (this.#options.tellsDate?.(answer.masterId) ?? true)) {
      clock?.follow(answer.clusterMs, answer.clusterDates);
      this.#options.onDate?.();
    }
    // The version of a master that refuses this node does not concern this node.
    if (answer.refusal === undefined) clock?.hear(answer.clock);
    if (answer.refusal === undefined) this.#answeredMs = this.#options.env.clock.nowMs();
    return answer;
  }

  /** Takes over an answer; `isNewView`: there was no view before. */
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
      // No list has version 0: if the changes do not apply, the master sends the whole list next.
      this.#version = 0;
      if (after === undefined)
        throw new ProtocolError('discovery: the changes do not apply to the list that this node has');
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

  /** Waits while another link talks to the same master, and checks now and then whether that is still so. */
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
    // Jitter: nodes that lost the same master return at different times, but within one heartbeat interval.
    const jitter = 0.5 + env.random.u32() / 2 ** 33;
    const spentMs = hadMaster ? 0 : afterMs;
    await this.#pause(Math.max(DISCOVERY_RETRY_MIN_MS, this.#retryMs * jitter - spentMs));
    this.#retryMs = Math.min(this.#retryMs * 2, heartbeatIntervalMs);
  }

  /** Waits for `delayMs`, or until the link is stopped. */
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
