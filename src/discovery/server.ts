import { type Environment, systemEnvironment } from '../base/environment.js';
import { MeshCacheError } from '../base/errors.js';
import { DISCOVERY_SPREAD_GAP_MS, DISCOVERY_SPREAD_GAP_PER_MEMBER_MS, MEMBERS_MAX_COUNT } from '../base/limits.js';
import { MessageCodec } from '../rpc/message.js';
import { type RpcContext, RpcServer } from '../rpc/server.js';
import type { NodeInfo } from '../types.js';
import { type MemberStatus, MemberTable } from './member-table.js';
import { asMap, DiscoveryMethod, decodeIdentity, decodeNode, encodeRoster, wholeField } from './wire.js';

export interface DiscoveryServerOptions {
  /** Seconds; a member that is silent for so long has gone; default 6. */
  readonly memberTtl?: number;
  /** Seconds; a heartbeat without news is answered after so long; default 2. */
  readonly heartbeatInterval?: number;
  readonly env?: Environment;
}

/** A heartbeat that waits for news. */
interface Waiter {
  readonly nodeId: string;
  answer(): void;
}

/** A timer that fires this much too late shows that the process could not listen meanwhile. */
const LATE_MS = 250;

/**
 * A discovery master: keeps who is there for as long as they say so, and tells everybody at once when that changes. Keeps
 * nothing on disk; after a restart its members register again by themselves.
 */
export class DiscoveryServer {
  readonly #env: Environment;
  readonly #rpc: RpcServer;
  readonly #heartbeatIntervalMs: number;
  readonly #memberTtlMs: number;
  readonly #codec = new MessageCodec();
  readonly #table: MemberTable;
  readonly #masterId: string;
  readonly #waiters = new Map<string, Waiter>();
  #startedMs = 0;
  /** What members are told: the table as it was when it was spread last. */
  #spread: { version: number; roster: Uint8Array };
  #lastSpreadMs = Number.NEGATIVE_INFINITY;
  #cancelSpread: (() => void) | undefined;
  #cancelExpiry: (() => void) | undefined;
  #stopped = false;

  /** Throws `ArgumentError` for a host or port that none can be. */
  constructor(host: string, port: number, options: DiscoveryServerOptions = {}) {
    this.#env = options.env ?? systemEnvironment();
    this.#heartbeatIntervalMs = (options.heartbeatInterval ?? 2) * 1000;
    this.#memberTtlMs = (options.memberTtl ?? 6) * 1000;
    this.#table = new MemberTable(this.#memberTtlMs);
    this.#masterId = Buffer.from(this.#env.random.bytes(8)).toString('hex');
    this.#spread = this.#encodeTable();
    this.#rpc = new RpcServer({ host, port, env: this.#env });
    this.#rpc.handle(DiscoveryMethod.register, (params) => this.#register(params));
    this.#rpc.handle(DiscoveryMethod.heartbeat, (params, context) => this.#heartbeat(params, context));
    this.#rpc.handle(DiscoveryMethod.leave, (params) => this.#leave(params));
    this.#rpc.handle(DiscoveryMethod.members, () => this.#answer('ok', true));
  }

  /** Resolves with the port. Throws `ConfigError` when the address cannot be had; the cause has the system's code. */
  async start(): Promise<number> {
    this.#startedMs = this.#env.clock.nowMs();
    return this.#rpc.start();
  }

  /** Tells what it has not told yet; members notice at once and look for other masters. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelSpread?.();
    this.#cancelExpiry?.();
    if (this.#table.version !== this.#spread.version) {
      this.#spreadNow();
      await this.#env.clock.yield();
    }
    await this.#rpc.stop();
  }

  members(): Map<string, NodeInfo> {
    return this.#table.members();
  }

  #register(params: unknown): unknown {
    const info = decodeNode(asMap(params).node);
    const status = this.#table.register(info, this.#env.clock.nowMs());
    if (status === 'full') {
      const text = `the cluster has ${MEMBERS_MAX_COUNT} members, no more are allowed`;
      throw new MeshCacheError('ERR_OVERLOADED', text, { retryable: true });
    }
    this.#changed();
    return this.#answer(status, status === 'ok');
  }

  #heartbeat(params: unknown, context: RpcContext): unknown {
    const fields = asMap(params);
    const { nodeId, incarnation } = decodeIdentity(fields);
    const version = wholeField(fields, 'version');
    const waitMs = Math.min(wholeField(fields, 'wait_ms'), this.#heartbeatIntervalMs);
    const status = this.#table.heartbeat(nodeId, incarnation, this.#env.clock.nowMs());
    if (status !== 'ok') return this.#answer(status, false);
    const isNews = fields.master_id !== this.#masterId || version !== this.#spread.version;
    if (isNews || waitMs === 0) return this.#answer('ok', isNews);
    // That this master's list is complete now is news too.
    const toMaturityMs = this.#memberTtlMs - this.#ageMs();
    return this.#wait(nodeId, version, toMaturityMs > 0 ? Math.min(waitMs, toMaturityMs) : waitMs, context.signal);
  }

  /** Answers when there is news, at the latest after `waitMs`; of one node only the last heartbeat waits. */
  #wait(nodeId: string, version: number, waitMs: number, signal: AbortSignal): Promise<unknown> {
    this.#waiters.get(nodeId)?.answer();
    return new Promise((resolve) => {
      const answer = (): void => {
        cancelTimer();
        signal.removeEventListener('abort', answer);
        if (this.#waiters.get(nodeId) === waiter) this.#waiters.delete(nodeId);
        resolve(this.#answer('ok', version !== this.#spread.version));
      };
      const waiter = { nodeId, answer };
      const cancelTimer = this.#env.clock.after(waitMs, answer);
      signal.addEventListener('abort', answer);
      this.#waiters.set(nodeId, waiter);
    });
  }

  #leave(params: unknown): unknown {
    const { nodeId, incarnation } = decodeIdentity(asMap(params));
    this.#table.leave(nodeId, incarnation);
    this.#changed();
    return {};
  }

  #answer(status: MemberStatus, withRoster: boolean): unknown {
    return {
      status,
      master_id: this.#masterId,
      version: this.#spread.version,
      age_ms: this.#ageMs(),
      roster: withRoster ? this.#spread.roster : null,
    };
  }

  #ageMs(): number {
    return Math.floor(this.#env.clock.nowMs() - this.#startedMs);
  }

  #changed(): void {
    if (this.#stopped) return;
    this.#scheduleExpiry();
    if (this.#table.version === this.#spread.version || this.#cancelSpread !== undefined) return;
    const gapMs = DISCOVERY_SPREAD_GAP_MS + this.#table.size * DISCOVERY_SPREAD_GAP_PER_MEMBER_MS;
    const waitMs = this.#lastSpreadMs + gapMs - this.#env.clock.nowMs();
    if (waitMs <= 0) this.#spreadNow();
    else this.#cancelSpread = this.#env.clock.after(waitMs, () => this.#spreadNow());
  }

  #spreadNow(): void {
    this.#cancelSpread = undefined;
    this.#lastSpreadMs = this.#env.clock.nowMs();
    this.#spread = this.#encodeTable();
    for (const waiter of [...this.#waiters.values()]) waiter.answer();
  }

  #encodeTable(): { version: number; roster: Uint8Array } {
    const roster = { members: this.#table.members(), gone: this.#table.departures };
    return { version: this.#table.version, roster: encodeRoster(this.#codec, roster) };
  }

  /** One timer, for who expires next; set again when it fires, because heartbeats move the time on. */
  #scheduleExpiry(): void {
    if (this.#cancelExpiry !== undefined) return;
    const dueMs = this.#table.nextExpiryMs();
    if (dueMs === undefined) return;
    const waitMs = Math.max(1, dueMs - this.#env.clock.nowMs());
    this.#cancelExpiry = this.#env.clock.after(waitMs, () => this.#expire(dueMs));
  }

  #expire(dueMs: number): void {
    this.#cancelExpiry = undefined;
    const nowMs = this.#env.clock.nowMs();
    const lateMs = nowMs - dueMs;
    if (lateMs > LATE_MS) this.#table.excuse(lateMs);
    this.#table.expire(nowMs);
    this.#changed();
  }
}
