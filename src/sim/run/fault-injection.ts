import type { Checker } from '../check/checker.js';
import { type Fault, type FaultKind, RESTARTS } from '../scenario/faults.js';
import type { LinkTrouble } from '../world/link.js';
import type { SimHost } from '../world/sim-host.js';
import type { World } from '../world/world.js';
import type { SimNode } from './sim-node.js';

export interface FaultInjectionParts {
  readonly world: World;
  readonly nodes: readonly SimNode[];
  readonly checker: Checker;
  /** Drains a node as an operator does; resolves when it has left, or when it is not able to. */
  readonly drain: (node: SimNode, timeoutMs: number) => Promise<void>;
  /** Memory of a host on which no pool has room. */
  readonly hostMemoryBytes: number;
}

/** Of all bytes that a host has, too few for any pool. */
const NO_MEMORY_BYTES = 0;

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
        return this.#each(nodes, (node) => node.kill());
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
        this.#each(nodes, (node) => node.freeze());
        return this.#later(nodes, (node) => node.thaw());
      case 'memory':
        this.#each(hosts, (host) => host.limitMemory(NO_MEMORY_BYTES));
        this.#each(nodes, (node) => node.kill());
        // As a supervisor does it.
        for (const node of nodes) void node.start();
        return this.#later(hosts, (host) => host.limitMemory(this.#parts.hostMemoryBytes));
      default:
        return this.#trouble(fault, hosts);
    }
  }

  /** What happens to hosts while their processes go on. */
  #trouble({ kind, peers, amount }: Fault, hosts: readonly SimHost[]): () => void {
    switch (kind) {
      case 'isolate':
      case 'partition':
        return this.#links(hosts, this.#others(hosts, kind === 'isolate' ? [] : peers), { isBlocked: true });
      case 'oneway':
        return this.#oneWay(this.#of(peers).hosts, hosts, { isBlocked: true });
      case 'loss':
        return this.#links(hosts, this.#others(hosts), { lossProbability: amount / 100 });
      case 'delay':
        return this.#links(hosts, this.#others(hosts), { addedLatencyMs: amount });
      case 'slow':
        return this.#links(hosts, this.#others(hosts), { bytesPerS: amount });
      case 'refuse':
        this.#each(hosts, ({ network }) => {
          network.isRefusing = true;
        });
        return this.#later(hosts, ({ network }) => {
          network.isRefusing = false;
        });
      case 'diskfull':
        this.#each(hosts, ({ disk }) => {
          disk.isFull = true;
        });
        return this.#later(hosts, ({ disk }) => {
          disk.isFull = false;
        });
      case 'diskslow':
        this.#each(hosts, ({ disk }) => {
          disk.slowness = amount;
        });
        return this.#later(hosts, ({ disk }) => {
          disk.slowness = 1;
        });
      case 'diskerror':
        return this.#diskErrors(hosts);
      case 'bitrot':
        return this.#each(hosts, ({ disk }) => disk.rot(amount));
      case 'clockjump':
        return this.#each(hosts, ({ time }) => time.jump(amount));
      case 'clockdrift':
        this.#each(hosts, ({ time }) => time.setDrift(amount));
        return this.#later(hosts, ({ time }) => time.setDrift(0));
      case 'clockstop':
        this.#each(hosts, ({ time }) => time.stopWall());
        return this.#later(hosts, ({ time }) => time.startWall());
      default:
        return () => {};
    }
  }

  #powerOff(hosts: readonly SimHost[], keepsDisks: boolean): () => void {
    for (const host of hosts) host.crash();
    for (const node of this.#parts.nodes) if (hosts.includes(node.host)) node.gone();
    return this.#later(hosts, (host) => void host.restart({ keepsDisks }));
  }

  #diskErrors(hosts: readonly SimHost[]): () => void {
    this.#each(hosts, ({ disk }) => Object.assign(disk.errorProbability, { read: 0.5, write: 0.5, flush: 0.5 }));
    return this.#later(hosts, ({ disk }) => void Object.assign(disk.errorProbability, { read: 0, write: 0, flush: 0 }));
  }

  /** Both ways. */
  #links(some: readonly SimHost[], others: readonly SimHost[], trouble: LinkTrouble): () => void {
    const undos = [this.#oneWay(some, others, trouble), this.#oneWay(others, some, trouble)];
    return () => {
      for (const undo of undos) undo();
    };
  }

  #oneWay(from: readonly SimHost[], to: readonly SimHost[], trouble: LinkTrouble): () => void {
    const [senders, receivers] = [from, to].map((hosts) => new Set(hosts.map(({ network }) => network)));
    if (senders === undefined || receivers === undefined || senders.size * receivers.size === 0) return () => {};
    return this.#parts.world.fabric.addRule({ from: senders, to: receivers, trouble });
  }

  /** The hosts of these nodes that are not among `hosts`; of all nodes, when there are none. */
  #others(hosts: readonly SimHost[], nodes: readonly number[] = []): SimHost[] {
    const all = nodes.length === 0 ? [...new Set(this.#parts.nodes.map(({ host }) => host))] : this.#of(nodes).hosts;
    return all.filter((host) => !hosts.includes(host));
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

  #each<T>(of: readonly T[], act: (one: T) => void): () => void {
    for (const one of of) act(one);
    return () => {};
  }

  #later<T>(of: readonly T[], act: (one: T) => void): () => void {
    return () => {
      for (const one of of) act(one);
    };
  }

  #sleep(ms: number): Promise<void> {
    const { world } = this.#parts;
    return new Promise((resolve) => world.at(world.nowMs + ms, resolve));
  }
}
