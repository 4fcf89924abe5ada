import type { FaultEffect } from '../check/read-order.js';
import { type Fault, type FaultKind, RESTARTS } from '../scenario/faults.js';
import { hasSource } from '../scenario/scenario.js';
import { applyFault, type FaultKind as HostFaultKind } from '../world/faults.js';
import type { SimHost } from '../world/sim-host.js';
import { SOURCE_NAME } from './node-settings.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';

/** Faults of the world for each kind of fault that affects hosts; the amount is converted to the world's unit. */
const OF_HOSTS: Partial<
  Record<FaultKind, (amount: number) => readonly { readonly kind: HostFaultKind; readonly amount?: number }[]>
> = {
  sleep: () => [{ kind: 'sleep' }],
  memory: () => [{ kind: 'memory' }],
  isolate: () => [{ kind: 'partition' }],
  partition: () => [{ kind: 'partition' }],
  oneway: () => [{ kind: 'deaf' }],
  loss: (percent) => [{ kind: 'loss', amount: percent / 100 }],
  delay: (amount) => [{ kind: 'delay', amount }],
  slow: (amount) => [{ kind: 'throttle', amount }],
  stall: () => [{ kind: 'stall' }],
  reset: (amount) => [{ kind: 'reset', amount }],
  refuse: () => [{ kind: 'refuse' }],
  busy: (us) => [{ kind: 'slow', amount: us / 1000 }],
  diskfull: () => [{ kind: 'disk-full' }],
  diskreadonly: () => [{ kind: 'disk-read-only' }],
  diskslow: (amount) => [{ kind: 'disk-slow', amount }],
  diskerror: (percent) => [
    { kind: 'disk-errors', amount: percent / 100 },
    { kind: 'disk-flush-errors', amount: percent / 100 },
  ],
  bitrot: (amount) => [{ kind: 'disk-rot', amount }],
  clockjump: (amount) => [{ kind: 'clock-jump', amount }],
  clockdrift: (amount) => [{ kind: 'clock-drift', amount }],
  clockstop: () => [{ kind: 'clock-stop' }],
};

/** Milliseconds after its start in which the master of a node may not know all members. */
const KNOWS_ALL_MS = 6_000;

/** Faults that keep no node which runs from answering, as long as the nodes find each other. */
const ENDS: ReadonlySet<FaultKind> = new Set(['kill', 'restart', 'drain']);

/** Addresses that belong to no host. */
const DEAD_ADDRESSES = ['10.254.0.1', '10.254.0.2', '10.254.0.3', '10.254.0.4'];

/** Injects faults into a running cluster. */
export class FaultInjection {
  readonly #cluster: SimCluster;
  /** Number of current faults that may make a start fail, by host. */
  readonly #troubled = new Map<SimHost, number>();

  constructor(cluster: SimCluster) {
    this.#cluster = cluster;
  }

  /** Whether a start on that host may fail. */
  isTroubled(host: SimHost): boolean {
    return (this.#troubled.get(host) ?? 0) > 0;
  }

  /** Injects a fault. Resolves when it is over and its nodes are up. */
  async inject(fault: Fault): Promise<void> {
    const { world, checker } = this.#cluster;
    const { nodes, hosts } = this.#of(fault.nodes);
    const ended = checker.faults.begin(world.nowMs, this.#effectOf(fault, nodes));
    const troubles = fault.kind === 'memory' || fault.kind.startsWith('disk') || fault.kind === 'bitrot';
    if (troubles) for (const host of hosts) this.#troubled.set(host, (this.#troubled.get(host) ?? 0) + 1);
    const undo = await this.#begin(fault, nodes, hosts);
    await this.#sleep(fault.durationMs);
    undo();
    if (troubles) for (const host of hosts) this.#troubled.set(host, (this.#troubled.get(host) ?? 0) - 1);
    if (RESTARTS.has(fault.kind))
      await Promise.all(this.#downAmong(fault.kind, nodes, hosts).map((node) => node.start()));
    ended(world.nowMs);
  }

  async #begin(fault: Fault, nodes: readonly SimNode[], hosts: readonly SimHost[]): Promise<() => void> {
    switch (fault.kind) {
      case 'kill':
        for (const node of nodes) node.kill();
        return () => {};
      case 'power':
      case 'replace':
      case 'rack':
        return this.#powerOff(hosts, fault.kind !== 'replace');
      case 'restart':
        await Promise.all(nodes.map((node) => node.close()));
        return () => {};
      case 'drain':
        await Promise.all(nodes.map((node) => this.#cluster.drain(node, fault.amount).then(() => node.close())));
        return () => {};
      case 'freeze':
        for (const node of nodes) node.freeze();
        return () => {
          for (const node of nodes) node.thaw();
        };
      case 'memory':
        this.#apply(fault, hosts);
        for (const node of nodes) node.kill();
        // A supervisor restarts nodes that have ended.
        for (const node of nodes) void node.start();
        return () => {};
      case 'sourcedown':
      case 'sourcesilent':
        return this.#source.fail(fault.kind === 'sourcedown' ? 'down' : 'silent');
      case 'sourcewipe':
      case 'sourceold':
        return this.#loseData(fault.kind === 'sourcewipe');
      default:
        return this.#apply(fault, hosts);
    }
  }

  /**
   * What a fault of these nodes does to the others. Without a listed master that stays up, and has been up for long
   * enough to know all members, nodes that start do not find the others at once, and neither does that master.
   */
  #effectOf({ kind }: Fault, nodes: readonly SimNode[]): FaultEffect {
    const { scenario, nodes: all, checker, world } = this.#cluster;
    const knowsAll = ({ processNumber: process }: SimNode): boolean =>
      process !== undefined && checker.faults.startMs(process) + KNOWS_ALL_MS < world.nowMs;
    const listed = hasSource(scenario) ? [] : all.slice(0, scenario.shape.listedMasters);
    const isFound = listed.some((node) => knowsAll(node) && !nodes.includes(node));
    return ENDS.has(kind) && isFound ? 'ends' : 'silences';
  }

  get #source() {
    const { world, scenario } = this.#cluster;
    return scenario.shape.discovery === 'etcd' ? world.etcd : world.names;
  }

  /** Makes the source of addresses lose its data, or fall back to old data; the returned function ends the fault. */
  #loseData(isAll: boolean): () => void {
    const { world, nodes } = this.#cluster;
    const { etcd, names } = world;
    if (this.#source === etcd) {
      const snapshot = etcd.snapshot();
      if (isAll) etcd.restart();
      return isAll ? () => {} : () => etcd.restart(snapshot);
    }
    names.set(SOURCE_NAME, isAll ? [] : DEAD_ADDRESSES);
    const addresses = new Set(nodes.map(({ host }) => host.address));
    return () => names.set(SOURCE_NAME, [...addresses]);
  }

  /** Applies a fault to hosts; the returned function ends it. */
  #apply(fault: Fault, hosts: readonly SimHost[]): () => void {
    const { world, nodes } = this.#cluster;
    const { atMs, durationMs } = fault;
    const targets = hosts.map(({ name }) => name);
    const peers = this.#of(fault.peers).hosts.map(({ name }) => name);
    for (const { kind, amount } of OF_HOSTS[fault.kind]?.(fault.amount) ?? []) {
      applyFault(world, {
        atMs,
        kind,
        targets,
        durationMs,
        ...(peers.length === 0 ? {} : { peers }),
        ...(amount === undefined ? {} : { amount }),
      });
    }
    if (fault.kind !== 'sleep') return () => {};
    const asleep = nodes.filter(({ host }) => hosts.includes(host));
    for (const node of asleep) node.stands();
    return () => {
      for (const node of asleep) node.goesOn();
    };
  }

  #powerOff(hosts: readonly SimHost[], keepsDisks: boolean): () => void {
    for (const host of hosts) host.crash();
    for (const node of this.#cluster.nodes) if (hosts.includes(node.host)) node.gone();
    return () => {
      for (const host of hosts) host.restart({ keepsDisks });
    };
  }

  #of(numbers: readonly number[]): { nodes: SimNode[]; hosts: SimHost[] } {
    const nodes = numbers.map((number) => this.#cluster.nodes[number - 1] as SimNode);
    return { nodes, hosts: [...new Set(nodes.map(({ host }) => host))] };
  }

  /** Nodes to start again: all nodes of the hosts if these were down, otherwise the nodes of the fault. */
  #downAmong(kind: FaultKind, nodes: readonly SimNode[], hosts: readonly SimHost[]): SimNode[] {
    const isOfHost = kind === 'power' || kind === 'replace' || kind === 'rack';
    return isOfHost ? this.#cluster.nodes.filter(({ host }) => hosts.includes(host)) : [...nodes];
  }

  #sleep(ms: number): Promise<void> {
    const { world } = this.#cluster;
    return new Promise((resolve) => world.at(world.nowMs + ms, resolve));
  }
}
