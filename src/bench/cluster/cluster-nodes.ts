import { findFreePort } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import { PeerProcess } from '../measuring/peer-process.js';
import type { ClusterAnswer, ClusterCommand } from './cluster-peer.js';

/** A process with one node, on a loopback address of its own: the other nodes see it as another host. */
export interface ClusterNode {
  readonly index: number;
  readonly process: PeerProcess<ClusterCommand, ClusterAnswer>;
}

/** Number of masters whose addresses are listed; nodes find further masters by their usual rule. */
const LISTED_COUNT = 2;
/** Processes that load the program at the same time. */
const LOADING_COUNT = 4;

/** The processes of one cluster. The caller must call `end`. */
export class ClusterNodes {
  readonly #discoveryAddr: string;
  readonly #pages: number;
  readonly #live = new Map<number, ClusterNode>();

  private constructor(discoveryAddr: string, pages: number) {
    this.#discoveryAddr = discoveryAddr;
    this.#pages = pages;
  }

  static async make(pages: number): Promise<ClusterNodes> {
    const port = await findFreePort(systemRandom);
    const listed = Array.from({ length: LISTED_COUNT }, (_, i) => `${clusterHost(i)}:${port}`);
    return new ClusterNodes(listed.join(), pages);
  }

  get live(): readonly ClusterNode[] {
    return [...this.#live.values()];
  }

  /** Starts processes. When this resolves they have loaded the program, and none has joined. */
  async load(indices: readonly number[]): Promise<void> {
    const left = [...indices];
    const worker = async (): Promise<void> => {
      for (let index = left.shift(); index !== undefined; index = left.shift()) {
        const process = new PeerProcess<ClusterCommand, ClusterAnswer>('cluster');
        this.#live.set(index, { index, process });
        await process.call({ kind: 'load' });
      }
    };
    await Promise.all(Array.from({ length: LOADING_COUNT }, worker));
  }

  /** Lets a node join. Resolves when it knows `peers`, itself among them, and finds their pages. */
  join(index: number, peers: readonly number[]): Promise<ClusterAnswer> {
    const [discoveryAddr, pages] = [this.#discoveryAddr, this.#pages];
    return this.#node(index).call({ kind: 'join', discoveryAddr, host: clusterHost(index), index, pages, peers });
  }

  call(index: number, command: ClusterCommand): Promise<ClusterAnswer> {
    return this.#node(index).call(command);
  }

  /** Sends a command to all live nodes, and resolves with their answers by index. */
  async callAll(command: ClusterCommand): Promise<Map<number, ClusterAnswer>> {
    const answers = this.live.map(async ({ index, process }) => [index, await process.call(command)] as const);
    return new Map(await Promise.all(answers));
  }

  /** Kills a node's process and forgets the node. Resolves when the process is gone. */
  async kill(index: number): Promise<void> {
    const node = this.#node(index);
    this.#live.delete(index);
    await node.kill();
  }

  /** Lets a node leave the cluster, then ends its process and forgets the node. */
  async leave(index: number): Promise<void> {
    await this.call(index, { kind: 'leave' });
    await this.kill(index);
  }

  end(): void {
    for (const { process } of this.live) process.end();
    this.#live.clear();
  }

  #node(index: number): PeerProcess<ClusterCommand, ClusterAnswer> {
    const node = this.#live.get(index);
    if (node === undefined) throw new Error(`no node ${index}`);
    return node.process;
  }
}

/** The loopback address of one node, which the other nodes see as a host of its own. */
export function clusterHost(index: number): string {
  return `127.0.0.${index + 1}`;
}
