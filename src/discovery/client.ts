import { type Environment, systemEnvironment } from '../base/environment.js';
import { ConfigError, type MeshCacheError } from '../base/errors.js';
import { DISCOVERY_LOG_INTERVAL_MS, DISCOVERY_MASTERS_MAX_COUNT, DISCOVERY_START_TIMEOUT_MS } from '../base/limits.js';
import { type Endpoint, formatEndpoint, parseEndpoint } from '../base/network.js';
import { RpcClient } from '../rpc/client.js';
import { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import { MasterLink } from './master-link.js';
import { isSameInfo } from './member-table.js';
import { mergeMembers } from './merge.js';

export interface DiscoveryClientOptions {
  /** Called with all members at a master's first answer, then when one has come, gone, or changed its start or address. */
  onMembers?(members: Map<string, NodeInfo>): void;
  /** Called at every failed attempt to reach a listed master. */
  onUnreachable?(endpoint: Endpoint): void;
  /**
   * A master that is not new had forgotten this node, which was cut off or could not run for longer than the time-to-live:
   * what it had announced to other nodes may be dropped there and is to be announced again.
   */
  onForgotten?(): void;
  /** Seconds; default 2. */
  readonly heartbeatInterval?: number;
  /** Seconds; default 6. */
  readonly memberTtl?: number;
  readonly env?: Environment;
}

/**
 * Makes this node a member with every listed master, and keeps the list of all members. The own node is always one. While no
 * master answers, the members stay as they were.
 */
export class DiscoveryClient {
  readonly #self: NodeInfo;
  readonly #options: DiscoveryClientOptions;
  readonly #env: Environment;
  readonly #rpc: RpcClient;
  readonly #links: readonly MasterLink[];
  #members: Map<string, NodeInfo>;
  #onFirstAnswer: () => void = () => {};
  #saidUnreachableMs: number | undefined;
  #saidReplaced = false;
  #hasAnswer = false;
  #started = false;
  #stopping: Promise<void> | undefined;

  /** `addr`: one or several `host:port`, comma-separated. Throws `ConfigError`. */
  constructor(addr: string, nodeInfo: NodeInfo, options: DiscoveryClientOptions = {}) {
    this.#self = nodeInfo;
    this.#options = options;
    this.#env = options.env ?? systemEnvironment();
    this.#rpc = new RpcClient({ env: this.#env });
    this.#members = new Map([[nodeInfo.nodeId, nodeInfo]]);
    const codec = new MessageCodec();
    this.#links = parseMasters(addr).map(
      (endpoint) =>
        new MasterLink({
          endpoint,
          self: nodeInfo,
          rpc: this.#rpc,
          codec,
          env: this.#env,
          heartbeatIntervalMs: (options.heartbeatInterval ?? 2) * 1000,
          memberTtlMs: (options.memberTtl ?? 6) * 1000,
          onChange: () => this.#changed(),
          onFailure: (error) => this.#failed(endpoint, error),
          onForgotten: () => this.#options.onForgotten?.(),
          onReplaced: () => this.#replaced(),
        }),
    );
  }

  /**
   * Resolves with the first master's list of members; without a master after DISCOVERY_START_TIMEOUT_MS, and goes on trying
   * until there is one. Never rejects.
   */
  async start(): Promise<void> {
    if (this.#started || this.#stopping !== undefined) return;
    this.#started = true;
    await new Promise<void>((resolve) => {
      const cancel = this.#env.clock.after(DISCOVERY_START_TIMEOUT_MS, resolve, { keepAlive: true });
      this.#onFirstAnswer = () => {
        cancel();
        resolve();
      };
      for (const link of this.#links) link.start();
    });
  }

  /** Leaves; takes at most DISCOVERY_LEAVE_TIMEOUT_MS. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** By node id; the map is the caller's. */
  members(): Map<string, NodeInfo> {
    return new Map(this.#members);
  }

  async #stop(): Promise<void> {
    this.#onFirstAnswer();
    await Promise.all(this.#links.map((link) => link.stop()));
    await this.#rpc.close();
  }

  #changed(): void {
    if (this.#stopping !== undefined) return;
    const views = this.#links.flatMap((link) => link.view ?? []);
    if (views.length === 0) return;
    if (this.#saidUnreachableMs !== undefined) {
      this.#saidUnreachableMs = undefined;
      this.#env.log.log('info', 'discovery master reached again', { node_id: this.#self.nodeId });
    }
    const merged = mergeMembers(this.#members, views, this.#self);
    const isChanged = !this.#hasAnswer || !isSameMembers(this.#members, merged);
    this.#hasAnswer = true;
    this.#members = merged;
    if (isChanged) this.#options.onMembers?.(new Map(merged));
    this.#onFirstAnswer();
  }

  #failed(endpoint: Endpoint, error: MeshCacheError): void {
    if (this.#stopping !== undefined) return;
    this.#env.metrics.count('meshcache_discovery_failures_total');
    this.#options.onUnreachable?.(endpoint);
    if (this.#links.some((link) => link.view !== undefined)) return;
    const nowMs = this.#env.clock.nowMs();
    if (this.#saidUnreachableMs !== undefined && nowMs - this.#saidUnreachableMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidUnreachableMs = nowMs;
    this.#env.log.log(
      'warn',
      'no discovery master is reachable; this node waits and goes on with the members it knows',
      {
        node_id: this.#self.nodeId,
        addresses: this.#links.map((link) => formatEndpoint(link.endpoint)).join(','),
        members: this.#members.size,
        reason: error.message,
      },
    );
  }

  #replaced(): void {
    if (this.#saidReplaced) return;
    this.#saidReplaced = true;
    this.#env.log.log('error', 'another node with the same node_id has started later; this one is no member any more', {
      node_id: this.#self.nodeId,
      incarnation: this.#self.incarnation,
    });
  }
}

function parseMasters(addr: string): Endpoint[] {
  const texts = addr.split(',').map((text) => text.trim());
  const endpoints = texts.map((text) => {
    const endpoint = parseEndpoint(text);
    if (endpoint !== undefined && isUnspecified(endpoint.host)) {
      throw new ConfigError(
        `discovery address ${JSON.stringify(text)}: nodes cannot reach each other there; give the address or the name ` +
          "of the master's machine (127.0.0.1 for one machine alone)",
      );
    }
    if (endpoint !== undefined && endpoint.port > 0) return endpoint;
    throw new ConfigError(`discovery address ${JSON.stringify(text)}: expected host:port, or several, comma-separated`);
  });
  const distinct = new Map(endpoints.map((endpoint) => [formatEndpoint(endpoint), endpoint]));
  if (distinct.size > DISCOVERY_MASTERS_MAX_COUNT) {
    throw new ConfigError(`${distinct.size} discovery addresses, at most ${DISCOVERY_MASTERS_MAX_COUNT} are allowed`);
  }
  return [...distinct.values()];
}

/** 0.0.0.0 and :: in any spelling: every address of a machine to listen on, none to connect to. */
function isUnspecified(host: string): boolean {
  return host !== '' && (/^(0+\.){0,3}0+$/.test(host) || (host.includes(':') && /^[0:.]+$/.test(host)));
}

function isSameMembers(a: ReadonlyMap<string, NodeInfo>, b: ReadonlyMap<string, NodeInfo>): boolean {
  if (a.size !== b.size) return false;
  for (const [nodeId, info] of a) {
    const other = b.get(nodeId);
    if (other === undefined || !isSameInfo(info, other)) return false;
  }
  return true;
}
