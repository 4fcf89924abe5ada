import type { Checker } from '../check/checker.js';
import { type Fault, type FaultKind, RESTARTS } from '../scenario/faults.js';
import { applyFault, type FaultKind as HostFaultKind } from '../world/faults.js';
import type { SimHost } from '../world/sim-host.js';
import type { World } from '../world/world.js';
import type { SimNode } from './sim-node.js';

export interface FaultInjectionParts {
  readonly world: World;
  readonly nodes: readonly SimNode[];
  readonly checker: Checker;
  /** Drains a node as an operator does; resolves when it has left, or when it is not able to. */
  readonly drain: (node: SimNode, timeoutMs: number) => Promise<void>;
}

/** What the world knows of hosts in trouble, for each kind; `amount` is in the unit of the kind here. */
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

/** Lets faults happen to a running cluster. */
export class FaultInjection {
  readonly #parts: FaultInjectionParts;
  /** Hosts on which a start may fail now, and how many faults say so. */
  readonly #troubled = new Map<SimHost, number>();

  constructor(parts: FaultInjectionParts) {
    this.#parts = parts;
  }

  /** Whether a node of that host may fail to start. */
  isTroubled(host: SimHost): boolean {
    return (this.#troubled.get(host) ?? 0) > 0;
  }

  /** From now on; resolves when the fault is over and its nodes are up. */
  async inject(fault: Fault): Promise<void> {
    const { world, checker } = this.#parts;
    const { nodes, hosts } = this.#of(fault.nodes);
    const ended = checker.faults.begin(world.nowMs);
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
        await Promise.all(nodes.map((node) => this.#parts.drain(node, fault.amount).then(() => node.close())));
        return () => {};
      case 'freeze':
        for (const node of nodes) node.freeze();
        return () => {
          for (const node of nodes) node.thaw();
        };
      case 'memory':
        this.#apply(fault, hosts);
        for (const node of nodes) node.kill();
        // As a supervisor does it.
        for (const node of nodes) void node.start();
        return () => {};
      default:
        return this.#apply(fault, hosts);
    }
  }

  /** What happens to hosts, and ends by itself. */
  #apply(fault: Fault, hosts: readonly SimHost[]): () => void {
    const { world, nodes } = this.#parts;
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
    for (const node of this.#parts.nodes) if (hosts.includes(node.host)) node.gone();
    return () => {
      for (const host of hosts) host.restart({ keepsDisks });
    };
  }

  #of(numbers: readonly number[]): { nodes: SimNode[]; hosts: SimHost[] } {
    const nodes = numbers.map((number) => this.#parts.nodes[number - 1] as SimNode);
    return { nodes, hosts: [...new Set(nodes.map(({ host }) => host))] };
  }

  /** Nodes that are to be started: of a host that was down, all. */
  #downAmong(kind: FaultKind, nodes: readonly SimNode[], hosts: readonly SimHost[]): SimNode[] {
    const isOfHost = kind === 'power' || kind === 'replace' || kind === 'rack';
    return isOfHost ? this.#parts.nodes.filter(({ host }) => hosts.includes(host)) : [...nodes];
  }

  #sleep(ms: number): Promise<void> {
    const { world } = this.#parts;
    return new Promise((resolve) => world.at(world.nowMs + ms, resolve));
  }
}
