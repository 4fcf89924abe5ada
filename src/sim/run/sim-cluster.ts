import { ArgumentError } from '../../base/errors.js';
import { PROMOTE_POOL_FRACTION, PROMOTE_RETRY_MAX_MS, QUARANTINE_POOL_FRACTION } from '../../base/limits.js';
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
import type { SimHost } from '../world/sim-host.js';
import type { SimProcess } from '../world/sim-process.js';
import type { World } from '../world/world.js';
import { FaultInjection } from './fault-injection.js';
import { MixedKeys } from './mixed-calls.js';
import { controlPort, diskShape, hostAddress, hostName, SOURCE_NAME } from './node-settings.js';
import {
  ConversationRequests,
  type RequestOutcome,
  type RequestSource,
  type SimRequest,
  TraceRequests,
} from './requests.js';
import type { RunOptions } from './run-scenario.js';
import { Series } from './series.js';
import { SessionRequests } from './session-requests.js';
import { SimNode } from './sim-node.js';

/** Chooses the node that serves a request, by its number from 1. */
export type Route = (request: SimRequest, nodes: readonly SimNode[]) => number;

/**
 * A program that uses a cluster while faults happen; the run lasts until it resolves. Pages that it sets through a
 * node's `checked` are checked like all others. Pages that it sets through `store` are not, and need keys that
 * `checked` does not use.
 */
export type SimProgram = (cluster: SimCluster) => Promise<void>;

/** Number of a request's first pages that decide its routing by prefix. */
const ROUTING_PAGES = 2;
const VNODES = 160;

/** The hosts and nodes of a scenario, with its workload and its faults. */
export class SimCluster {
  readonly nodes: readonly SimNode[];
  readonly checker: Checker;
  readonly faults: FaultInjection;
  readonly series: Series;
  /**
   * Counts of requests: pages looked up, pages read before the first miss and those of them that were in the pool of
   * the node, and requests lost with a node that went down. The time that each one waited for its found pages.
   */
  readonly requests = { count: 0, asked: 0, found: 0, local: 0, lost: 0, waitsMs: [] as number[] };
  /** Virtual time at which the scenario's times begin. */
  workSinceMs = 0;
  /** @internal */
  readonly world: World;
  readonly scenario: Scenario;
  /** @internal Keys of the mixed workload. */
  readonly keys: MixedKeys | undefined;
  /** @internal */
  readonly createStore: RunOptions['createStore'];
  readonly #operator: Operator;
  readonly #route: Route;
  readonly #source: RequestSource | undefined;
  readonly #program: SimProgram | undefined;

  /** @internal `runScenario` creates clusters. */
  constructor(world: World, scenario: Scenario, violations: Violations, options: RunOptions) {
    this.#program = options.program;
    this.createStore = options.createStore;
    this.world = world;
    this.scenario = scenario;
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
    this.keys = workload.kind === 'mixed' ? new MixedKeys(workload, scenario) : undefined;
    this.nodes = Array.from({ length: scenario.nodes }, (_, i) => {
      return new SimNode(this, hosts[hostOf(scenario, i + 1) - 1] as SimHost, i + 1);
    });
    this.#operator = new Operator(world, scenario);
    this.faults = new FaultInjection(this);
    this.series = new Series(world, this.nodes, this.requests);
    this.#route = options.route ?? routeBy(scenario);
    this.#source = this.#requestSource();
  }

  /** Starts the nodes that exist from the beginning. */
  async start(): Promise<void> {
    const late = new Set(this.scenario.joins.flatMap(({ nodes }) => nodes));
    await Promise.all(this.nodes.filter(({ number }) => !late.has(number)).map((node) => node.start()));
  }

  /** Runs the workload, the faults and the joins. Resolves when all of them are over and every node is up. */
  async work(): Promise<void> {
    const { durationMs, faults, joins } = this.scenario;
    const startMs = this.world.nowMs;
    this.workSinceMs = startMs;
    const until = (ms: number) => this.sleep(Math.max(0, startMs + ms - this.world.nowMs));
    for (const node of this.nodes) node.work();
    this.#source?.start();
    await Promise.all([
      Promise.race([until(durationMs), ...(this.#source?.over === undefined ? [] : [this.#source.over])]),
      this.#program?.(this),
      ...faults.map((fault) => until(fault.atMs).then(() => this.faults.inject(fault))),
      ...joins.map(async ({ atMs, nodes }) => {
        await until(atMs);
        const ended = this.checker.faults.begin(this.world.nowMs, 'ends');
        await Promise.all(nodes.map((node) => this.nodes[node - 1]?.start()));
        ended(this.world.nowMs);
      }),
    ]);
  }

  /** Stops the workload. Resolves when no call is in progress. */
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
    return this.keys?.scopes ?? [''];
  }

  #hosts(): SimHost[] {
    const { nodes } = this.scenario;
    const disk = diskShape(this.scenario);
    return Array.from({ length: hostOf(this.scenario, nodes) }, (_, i) => {
      return this.world.host({ name: hostName(i + 1), address: hostAddress(i + 1), disk });
    });
  }

  #requestSource(): RequestSource | undefined {
    const { workload } = this.scenario;
    if (workload.kind === 'trace') return new TraceRequests(workload, this);
    if (workload.kind === 'sessions') return new SessionRequests(workload, this);
    return workload.kind === 'conversations' ? new ConversationRequests(workload, this) : undefined;
  }

  /**
   * @internal Sends a request to a node. Resolves with the node when it has been served, undefined if the node went
   * down; may never resolve.
   */
  async send(request: SimRequest): Promise<{ node: SimNode; outcome: RequestOutcome } | undefined> {
    const number = this.#route(request, this.nodes);
    const chosen = this.nodes[number - 1];
    if (chosen === undefined) {
      throw new ArgumentError(
        `route must return the number of a node, 1 to ${this.nodes.length}, got ${shown(number)}`,
      );
    }
    // A real router knows which nodes are up, too.
    const node = chosen.isUp ? chosen : this.nodes.find(({ isUp }) => isUp);
    this.requests.count++;
    const outcome = await node?.serve(request.keys);
    if (node === undefined || outcome === undefined) {
      this.requests.lost++;
      return undefined;
    }
    this.requests.asked += outcome.asked;
    this.requests.found += outcome.found;
    this.requests.local += outcome.local;
    this.requests.waitsMs.push(outcome.waitMs);
    return { node, outcome };
  }

  /** Virtual time in milliseconds. */
  get nowMs(): number {
    return this.world.nowMs;
  }

  /** @internal Drains a node as an operator does. Resolves when it has left, or has not left in time. */
  drain(node: SimNode, timeoutMs: number): Promise<void> {
    return this.#operator.drain(node, timeoutMs);
  }

  /** @internal Calls `fn` after `delayMs` of virtual time. */
  after(delayMs: number, fn: () => void): void {
    this.world.at(this.world.nowMs + Math.max(0, delayMs), fn);
  }

  /** Resolves after `ms` of virtual time. */
  readonly sleep = (ms: number): Promise<void> => {
    return new Promise((resolve) => this.world.at(this.world.nowMs + ms, resolve));
  };
}

/** Number of pages of a large call. */
const CALL_PAGES_COUNT = 64;

/** Bounds of calls that may wait for a disk, in milliseconds. */
function callBounds(scenario: Scenario): Partial<Record<CallKind, number>> {
  const { shape } = scenario;
  const waitsForDisk = shape.diskPages !== null && (shape.config.disk_write ?? 'wait') === 'wait';
  const get = CALL_BOUNDS_MS.get + promotingMs(scenario, CALL_PAGES_COUNT);
  return waitsForDisk ? { set: 36_000, get } : { get };
}

function routeBy({ workload, nodes }: Scenario): Route {
  const routing: PlacementRouting = 'routing' in workload ? workload.routing : 'round-robin';
  const settings = { nodes, routing, routingPages: ROUTING_PAGES, vnodes: VNODES } as PlacementSettings;
  const router = placementRouter(settings, defaultCore());
  return (request) => router.route(request) + 1;
}

/** An operator outside of the cluster, as with the command line. */
class Operator {
  readonly #world: World;
  readonly #scenario: Scenario;
  #process: SimProcess | undefined;
  #rpc: RpcClient | undefined;

  constructor(world: World, scenario: Scenario) {
    this.#world = world;
    this.#scenario = scenario;
  }

  /** Drains a node. Resolves when it has left, at the latest after twice `timeoutMs`. */
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

const QUARANTINE_MS = 1_000;

/** One-way messages with which a reader has a page promoted to memory, reads it and releases it. */
const PROMOTION_MESSAGES_COUNT = 6;

/**
 * Additional milliseconds until every node has read this many pages of a disk. Each reader, including the disk's own
 * node, needs a page in memory for itself; at most PROMOTE_POOL_FRACTION of the pool, or one page, is available to
 * readers at a time. With `verify_reads` off, freed memory stays in quarantine for the full time, because nothing else
 * protects pages that are being read, and at most QUARANTINE_POOL_FRACTION of the pool, or one page, may be in
 * quarantine. A reader asks again after pauses: once until the memory is freed, and once when its quarantine is over.
 */
function promotingMs({ shape, network, nodes }: Scenario, pages: number): number {
  if (shape.diskPages === null) return 0;
  const placesOf = (fraction: number): number => Math.max(1, Math.floor(shape.poolPages * fraction));
  const sendingMs = (PROMOTION_MESSAGES_COUNT * network.latencyMs) / placesOf(PROMOTE_POOL_FRACTION);
  if (shape.config.verify_reads !== false) return pages * nodes * sendingMs;
  const quarantineMs = Number(shape.config.reuse_quarantine_ms ?? QUARANTINE_MS);
  return pages * nodes * (sendingMs + (quarantineMs + 2 * PROMOTE_RETRY_MAX_MS) / placesOf(QUARANTINE_POOL_FRACTION));
}

/** Factor for repetitions: reads that come too late are repeated, and leave data on the link that nothing waits for. */
const TRANSFERS_COUNT = 6;

/**
 * Additional milliseconds until every node has found this many pages: {@link promotingMs}, plus the time in which one
 * node, which may have all of them, can send them to all others.
 */
export function searchingMs(scenario: Scenario, pages: number): number {
  const { shape, network, nodes } = scenario;
  const bytes = pages * shape.pageBytes * (nodes - 1);
  return promotingMs(scenario, pages) + (TRANSFERS_COUNT * bytes * 1000) / network.bytesPerS;
}
