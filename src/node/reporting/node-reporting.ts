import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { MeshCacheConfig } from '../../config.js';
import type { Metrics } from '../../metrics/metrics.js';
import { MetricsServer } from '../../metrics/metrics-server.js';
import type { ClusterReport, HealthReport, NodeReport, NodeView } from '../../metrics/node-report.js';
import type { NodeRuntime } from '../runtime/node-runtime.js';
import type { RecentEvents } from './recent-events.js';

export interface NodeReportingParts {
  readonly config: MeshCacheConfig;
  readonly metrics: Metrics;
  readonly events: RecentEvents;
  readonly env: Environment;
}

/** What the store says of itself. */
export interface StoreReporter {
  /** What it adds to the report of the runtime. */
  report(): Pick<NodeReport, 'pool' | 'disk' | 'clients'>;
  /** What is wrong with it, in words for an operator. */
  troubles(): string[];
}

/** A node as operators see it: its metrics server, its health, and its report to others. Lives as long as its store. */
export class NodeReporting implements NodeView {
  readonly #parts: NodeReportingParts;
  readonly #server: MetricsServer | undefined;
  #endpoint: Endpoint | undefined;
  #node: { readonly runtime: NodeRuntime; readonly store: StoreReporter } | undefined;
  #isClosing = false;

  constructor(parts: NodeReportingParts) {
    this.#parts = parts;
    const { config, metrics, env } = parts;
    if (!config.metricsEnabled) return;
    this.#server = new MetricsServer(metrics, config.metricsHost, config.metricsPort, {
      dashboard: config.metricsDashboard,
      ...(config.metricsToken === undefined ? {} : { token: config.metricsToken }),
      node: this,
      avoidPorts: portsOf(config),
      env,
    });
  }

  /** Where the metrics server listens; undefined when there is none. */
  get endpoint(): Endpoint | undefined {
    return this.#endpoint;
  }

  /** Throws `ConfigError` when the metrics server cannot listen. */
  async start(): Promise<void> {
    if (this.#server === undefined) return;
    this.#parts.metrics.observe();
    const port = await this.#server.start();
    this.#endpoint = { host: this.#parts.config.metricsHost, port };
  }

  /** From now on there is a node to tell of. */
  attach(runtime: NodeRuntime, store: StoreReporter): void {
    this.#node = { runtime, store };
    runtime.reportStatus(async () => ({
      ...(await this.#parts.metrics.report()),
      ...store.report(),
      health: this.health(),
      events: this.#parts.events.list(),
    }));
  }

  /** The node is leaving: it is not healthy any more. */
  closing(): void {
    this.#isClosing = true;
  }

  async stop(): Promise<void> {
    this.#isClosing = true;
    await this.#server?.stop();
    this.#parts.metrics.close();
  }

  health(): HealthReport {
    const reasons = this.#troubles();
    return { status: reasons.length === 0 ? 'ok' : 'degraded', reasons };
  }

  async report(): Promise<NodeReport> {
    return this.#running().runtime.report();
  }

  async cluster(): Promise<ClusterReport> {
    return this.#running().runtime.cluster();
  }

  #troubles(): string[] {
    if (this.#isClosing) return ['the node is leaving the cluster'];
    if (this.#node === undefined) return ['the node is starting'];
    return [...this.#node.runtime.troubles(), ...this.#node.store.troubles()];
  }

  #running(): { readonly runtime: NodeRuntime } {
    if (this.#node === undefined) throw new Error('the node is starting');
    return this.#node;
  }
}

/** What the node itself may listen on, on this host: the metrics server, which starts first, leaves it free. */
function portsOf(config: MeshCacheConfig): number[] {
  const discoveryPorts = config.discoveryEndpoints().map(({ port }) => port);
  return [config.controlPort, config.tcpPort, ...discoveryPorts].filter((port) => port > 0);
}
