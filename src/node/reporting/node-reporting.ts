import { WorkTurns } from '../../base/concurrency/work-turns.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { MeshCacheConfig } from '../../config.js';
import type { PageEventSource } from '../../metrics/event-stream.js';
import type { ClusterHistory, HistoryReport } from '../../metrics/history-report.js';
import type { Metrics } from '../../metrics/metrics.js';
import { MetricsServer } from '../../metrics/metrics-server.js';
import type { ClusterReport, HealthReport, NodeReport, NodeView } from '../../metrics/node-report.js';
import type { PageAdvice } from '../../metrics/page-advice.js';
import { DoorTls } from '../../net/credentials/door-tls.js';
import type { Users } from '../../net/users.js';
import { NodeFigures } from './node-figures.js';
import type { RecentEvents } from './recent-events.js';

export interface NodeReportingParts {
  readonly config: MeshCacheConfig;
  readonly metrics: Metrics;
  readonly events: RecentEvents;
  readonly users: Users;
  readonly env: Environment;
}

/** A node that has joined its cluster, as seen by its operators. */
export interface ReportedNode {
  /** The live members known to this node, itself included. */
  members(): { readonly size: number };
  report(): Promise<NodeReport>;
  cluster(): Promise<ClusterReport>;
  history(stepS: number): Promise<ClusterHistory>;
  /** Describes to an operator what is wrong with the node's membership. */
  troubles(): string[];
}

/** A store's own part of its node's report. */
export interface StoreReporter {
  /** Current state of the pool, the disk, the object store and the attached clients. */
  report(): Pick<NodeReport, 'pool' | 'disk' | 'object_store' | 'clients'>;
  /** Describes to an operator what is wrong with the store. */
  troubles(): string[];
  /** The events of the store's pages. */
  readonly events: PageEventSource;
  /** Takes advice about the store's pages. */
  readonly advice: PageAdvice;
}

/**
 * Shows a node to its operators: the metrics server, its health, and its report to other nodes. Lives as long as the
 * node's store.
 */
export class NodeReporting implements NodeView {
  /** Divides the time of the main loop between the readers of the metrics server and the clients of the doors. */
  readonly turns: WorkTurns;
  readonly #parts: NodeReportingParts;
  readonly #server: MetricsServer | undefined;
  #endpoint: Endpoint | undefined;
  #figures: NodeFigures | undefined;
  #running: { readonly node: ReportedNode; readonly store: StoreReporter } | undefined;
  #isClosing = false;

  constructor(parts: NodeReportingParts) {
    this.#parts = parts;
    const { config, metrics, users, env } = parts;
    this.turns = new WorkTurns(env.clock);
    if (!config.metricsEnabled) return;
    this.#server = new MetricsServer(metrics, config.metricsHost, config.metricsPort, {
      dashboard: config.metricsDashboard,
      ...(config.metricsToken === undefined ? {} : { token: config.metricsToken }),
      tls: DoorTls.of('metrics', config, env),
      users,
      turns: this.turns,
      node: this,
      avoidPorts: portsOf(config),
      env,
    });
  }

  /** Where the metrics server listens; undefined without one. */
  get endpoint(): Endpoint | undefined {
    return this.#endpoint;
  }

  /** Starts the metrics server, if there is one. Throws `ConfigError` if it cannot listen. */
  async start(): Promise<void> {
    if (this.#server === undefined) return;
    this.#parts.metrics.observe();
    const port = await this.#server.start();
    this.#endpoint = { host: this.#parts.config.metricsHost, port };
  }

  /** Called when the node has joined its cluster and its store serves; reports are available from then on. */
  running(node: ReportedNode, store: StoreReporter): void {
    this.#running = { node, store };
    if (this.#server === undefined || this.#isClosing) return;
    const { metrics, env } = this.#parts;
    const members = () => node.members().size;
    this.#figures = new NodeFigures({ metrics, store: () => store.report(), members, clock: env.clock });
  }

  /** The part of a node's report that its store adds. Rejects while the node is starting. */
  async storePart(): Promise<Record<string, unknown>> {
    const { store } = this.#runningNode();
    return {
      ...(await this.#parts.metrics.report()),
      ...store.report(),
      ...this.#figures?.recent(),
      health: this.health(),
      events: this.#parts.events.list(),
    };
  }

  /** The node's figures over time; undefined without a metrics server, and while the node is starting. */
  storeHistory(stepS: number): Omit<HistoryReport, 'node_id' | 'incarnation'> | undefined {
    return this.#figures?.history(stepS);
  }

  /** Called when the node begins to leave; it is not healthy from then on. */
  closing(): void {
    this.#isClosing = true;
  }

  async stop(): Promise<void> {
    this.#isClosing = true;
    this.#figures?.stop();
    await this.#server?.stop();
    this.#parts.metrics.close();
  }

  health(): HealthReport {
    const reasons = this.#troubles();
    return { status: reasons.length === 0 ? 'ok' : 'degraded', reasons };
  }

  async report(): Promise<NodeReport> {
    return this.#runningNode().node.report();
  }

  async cluster(): Promise<ClusterReport> {
    return this.#runningNode().node.cluster();
  }

  async history(stepS: number): Promise<ClusterHistory> {
    return this.#runningNode().node.history(stepS);
  }

  events(): PageEventSource | undefined {
    return this.#isClosing ? undefined : this.#running?.store.events;
  }

  advice(): PageAdvice | undefined {
    return this.#isClosing ? undefined : this.#running?.store.advice;
  }

  #troubles(): string[] {
    if (this.#isClosing) return ['the node is leaving the cluster'];
    if (this.#running === undefined) return ['the node is starting'];
    return [...this.#running.node.troubles(), ...this.#running.store.troubles()];
  }

  #runningNode(): { readonly node: ReportedNode; readonly store: StoreReporter } {
    if (this.#running === undefined) throw new Error('the node is starting');
    return this.#running;
  }
}

/** Ports on which the node itself may listen. The metrics server starts first, and leaves them free. */
function portsOf(config: MeshCacheConfig): number[] {
  const discoveryPorts = config.discoveryEndpoints().map(({ port }) => port);
  return [config.controlPort, config.tcpPort, ...discoveryPorts].filter((port) => port > 0);
}
