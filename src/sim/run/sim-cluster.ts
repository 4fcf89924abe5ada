import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { defaultCore } from '../../core/binding/core.js';
import type { PlacementRouting, PlacementSettings } from '../../core/index.js';
import { placementRouter } from '../../core/placement/placement-routing.js';
import { securedEnvironment } from '../../net/credentials/secured-environment.js';
import { DRAIN_METHOD } from '../../node/leaving/drain.js';
import { RpcClient } from '../../rpc/client.js';
import { CALL_BOUNDS_MS, type CallKind } from '../check/call-watch.js';
import { Checker } from '../check/checker.js';
import type { Violations } from '../check/violations.js';
import { hasClockFaults, hasCopies, hostOf, type Scenario } from '../scenario/scenario.js';
import { MixedKeys } from '../workload/mixed-keys.js';
import { ConversationRequests, type RequestSource, type SimRequest, TraceRequests } from '../workload/requests.js';
import { forkedRandom } from '../world/kernel/seeds.js';
import type { SimHost } from '../world/sim-host.js';
import type { SimProcess } from '../world/sim-process.js';
import type { World } from '../world/world.js';
import { FaultInjection } from './fault-injection.js';
import { controlPort, hostAddress, hostName, SOURCE_NAME } from './node-settings.js';
import { promotingMs } from './reading-time.js';
import { Series } from './series.js';
import { SimNode, type SimNodeParts } from './sim-node.js';

/** Chooses the node that serves a request, by its number from 1. */
export type Route = (request: SimRequest, nodes: readonly SimNode[]) => number;

/**
 * A program that works with a cluster while faults happen; the run goes on until it resolves. Pages that it sets by a
 * node's `checked` are checked like all others. Pages that it sets by `store` are not, and need keys that `checked`
 * does not use.
 */
export type SimProgram = (cluster: SimCluster) => Promise<void>;

export interface SimClusterParts {
  readonly world: World;
  readonly scenario: Scenario;
  readonly violations: Violations;
  readonly route?: Route | undefined;
  readonly program?: SimProgram | undefined;
  readonly createStore?: SimNodeParts['createStore'];
}

/** Number of a request's first pages that decide its routing by prefix. */
const ROUTING_PAGES = 2;
const VNODES = 160;

/** The hosts and nodes of a scenario, and their work. */
export class SimCluster {
  readonly nodes: readonly SimNode[];
  readonly checker: Checker;
  readonly faults: FaultInjection;
  readonly series: Series;
  /**
   * Counts of requests: pages looked up, pages read before the first miss, and requests lost with a node that went
   * down.
   */
  readonly requests = { count: 0, asked: 0, found: 0, lost: 0 };
  /** Virtual time at which the scenario's times begin. */
  workSinceMs = 0;
  readonly #world: World;
  readonly #scenario: Scenario;
  readonly #route: Route;
  readonly #source: RequestSource | undefined;
  readonly #program: SimProgram | undefined;

  /** @internal `runScenario` creates clusters. */
  constructor({ world, scenario, violations, route, program, createStore }: SimClusterParts) {
    this.#program = program;
    this.#world = world;
    this.#scenario = scenario;
    const { seed, workload } = scenario;
    this.checker = new Checker({
      seed,
      nowMs: () => world.nowMs,
      frozenMs: ({ node }, sinceMs) => this.nodes[node - 1]?.frozenMs(sinceMs) ?? 0,
      violations,
      hasClockFaults: hasClockFaults(scenario),
      hasCopies: hasCopies(scenario),
      replicas: Math.min(scenario.nodes, Number(scenario.shape.config.directory_replicas ?? 2)),
      callBoundsMs: callBounds(scenario),
    });
    const hosts = this.#hosts();
    world.names.set(
      SOURCE_NAME,
      hosts.map(({ address }) => address),
    );
    const keys = workload.kind === 'mixed' ? new MixedKeys(workload, scenario.shape) : undefined;
    this.nodes = Array.from({ length: scenario.nodes }, (_, i) => {
      const host = hosts[hostOf(scenario, i + 1) - 1] as SimHost;
      const mayFail = () => this.faults.isTroubled(host);
      return new SimNode({ world, host, scenario, node: i + 1, checker: this.checker, keys, mayFail, createStore });
    });
    const operator = new Operator(world, scenario);
    this.faults = new FaultInjection({
      world,
      scenario,
      nodes: this.nodes,
      checker: this.checker,
      drain: (node, timeoutMs) => operator.drain(node, timeoutMs),
    });
    this.series = new Series(world, this.nodes, this.requests);
    this.#route = route ?? routeBy(scenario);
    this.#source = this.#requestSource();
  }

  /** Starts the nodes that exist from the beginning. */
  async start(): Promise<void> {
    const late = new Set(this.#scenario.joins.flatMap(({ nodes }) => nodes));
    await Promise.all(this.nodes.filter(({ number }) => !late.has(number)).map((node) => node.start()));
  }

  /** Lets nodes work, faults happen and nodes join. Resolves when all of that is over and every node is up. */
  async work(): Promise<void> {
    const { durationMs, faults, joins } = this.#scenario;
    const startMs = this.#world.nowMs;
    this.workSinceMs = startMs;
    const until = (ms: number) => this.sleep(Math.max(0, startMs + ms - this.#world.nowMs));
    for (const node of this.nodes) node.work();
    this.#source?.start();
    await Promise.all([
      until(durationMs),
      this.#program?.(this),
      ...faults.map((fault) => until(fault.atMs).then(() => this.faults.inject(fault))),
      ...joins.map(async ({ atMs, nodes }) => {
        await until(atMs);
        const ended = this.checker.faults.begin(this.#world.nowMs);
        await Promise.all(nodes.map((node) => this.nodes[node - 1]?.start()));
        ended(this.#world.nowMs);
      }),
    ]);
  }

  /** Resolves when no call is in progress. */
  async rest(): Promise<void> {
    this.#source?.stop();
    await Promise.all(this.nodes.map((node) => node.rest()));
  }

  /** Closes all stores. */
  async close(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.close()));
  }

  /** Tags of the namespaces that the workload uses. */
  get scopes(): readonly string[] {
    const { workload } = this.#scenario;
    return workload.kind === 'mixed' ? ['', ...workload.namespaces] : [''];
  }

  #hosts(): SimHost[] {
    const { nodes } = this.#scenario;
    return Array.from({ length: hostOf(this.#scenario, nodes) }, (_, i) => {
      return this.#world.host({ name: hostName(i + 1), address: hostAddress(i + 1) });
    });
  }

  #requestSource(): RequestSource | undefined {
    const { workload, seed } = this.#scenario;
    const world = this.#world;
    const parts = {
      after: (delayMs: number, fn: () => void) => world.at(world.nowMs + Math.max(0, delayMs), fn),
      send: (request: SimRequest) => this.#send(request),
      random: forkedRandom(seed, 'requests'),
    };
    if (workload.kind === 'trace') return new TraceRequests(workload, parts);
    return workload.kind === 'conversations' ? new ConversationRequests(workload, parts) : undefined;
  }

  async #send(request: SimRequest): Promise<undefined> {
    const number = this.#route(request, this.nodes);
    const chosen = this.nodes[number - 1];
    if (chosen === undefined) {
      throw new ArgumentError(
        `route must return the number of a node, 1 to ${this.nodes.length}, got ${shown(number)}`,
      );
    }
    // A real router knows which nodes are up.
    const node = chosen.isUp ? chosen : this.nodes.find(({ isUp }) => isUp);
    this.requests.count++;
    const outcome = await node?.serve(request.keys);
    if (outcome === undefined) {
      this.requests.lost++;
      return;
    }
    this.requests.asked += outcome.asked;
    this.requests.found += outcome.found;
  }

  /** Virtual milliseconds. */
  get nowMs(): number {
    return this.#world.nowMs;
  }

  /** Resolves after that much virtual time. */
  readonly sleep = (ms: number): Promise<void> => {
    return new Promise((resolve) => this.#world.at(this.#world.nowMs + ms, resolve));
  };
}

/** Pages of the larger calls. */
const CALL_PAGES_COUNT = 64;

/** Bounds of calls that may wait for a disk. */
function callBounds(scenario: Scenario): Partial<Record<CallKind, number>> {
  const { shape } = scenario;
  const waitsForDisk = shape.diskPages !== null && shape.config.disk_write !== 'skip';
  const get = CALL_BOUNDS_MS.get + promotingMs(scenario, CALL_PAGES_COUNT);
  return waitsForDisk ? { set: 36_000, get } : { get };
}

function routeBy({ workload, nodes }: Scenario): Route {
  const routing: PlacementRouting = 'routing' in workload ? workload.routing : 'round-robin';
  const settings = { nodes, routing, routingPages: ROUTING_PAGES, vnodes: VNODES } as PlacementSettings;
  const router = placementRouter(settings, defaultCore());
  return (request) => router.route(request) + 1;
}

/** An operator who works on a cluster from outside, as with the command line. */
class Operator {
  readonly #world: World;
  readonly #scenario: Scenario;
  #process: SimProcess | undefined;
  #rpc: RpcClient | undefined;

  constructor(world: World, scenario: Scenario) {
    this.#world = world;
    this.#scenario = scenario;
  }

  /** Drains a node. Resolves when it has left, goes down, or after `timeoutMs`. */
  async drain(node: SimNode, timeoutMs: number): Promise<void> {
    const { store } = node;
    if (store === undefined) return;
    const process = this.#running();
    const endpoint = { host: node.host.name, port: controlPort(this.#scenario, node.number) };
    const asked = process.run(async () => {
      await this.#rpc?.call(endpoint, DRAIN_METHOD, { timeout_ms: timeoutMs }).catch(() => {});
    });
    await Promise.race([asked, this.#sleep(timeoutMs)]);
    await Promise.race([store.drained, this.#sleep(timeoutMs)]);
  }

  #running(): SimProcess {
    if (this.#process === undefined) {
      const secret = this.#scenario.shape.config.cluster_secret;
      this.#process = this.#world.host({ name: 'operator' }).start();
      const security = secret === undefined ? {} : { clusterSecret: [String(secret)] };
      this.#rpc = new RpcClient({ env: securedEnvironment(security, this.#process.environment) });
    }
    return this.#process;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.at(this.#world.nowMs + ms, resolve));
  }
}
