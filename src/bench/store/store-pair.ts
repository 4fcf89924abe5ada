import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from '../measuring/peer-process.js';
import { servePlainly } from '../measuring/plain-pair.js';
import {
  awaitMembers,
  type BenchCluster,
  benchKeys,
  benchStorage,
  type PeerAnswer,
  type PeerCommand,
  publishPages,
  stampPage,
} from '../measuring/store-pages.js';

const READER_POOL_BYTES = 2 ** 20;

/**
 * Clusters of two nodes each. One node of each cluster is in a serving process, which sets pages; the other one is in
 * this process and reads them.
 */
export class StorePair {
  readonly peer: PeerProcess<PeerCommand, PeerAnswer>;
  /** One reader for each configuration, in order. */
  readonly readers: readonly MeshCacheStore[];
  /** Port on which the serving process serves the same pages over plain sockets. */
  readonly plainPort: number;

  private constructor(peer: StorePair['peer'], readers: readonly MeshCacheStore[], plainPort: number) {
    this.peer = peer;
    this.readers = readers;
    this.plainPort = plainPort;
  }

  /** Starts one cluster for each element of `configs`, which holds the settings of both its nodes. */
  static async start(
    configs: readonly BenchCluster['config'][],
    { poolBytes, workBytes }: { readonly poolBytes: number; readonly workBytes: number },
  ): Promise<StorePair> {
    const clusters: BenchCluster[] = [];
    for (const config of configs) {
      clusters.push({ discoveryAddr: `${LOOPBACK}:${await findFreePort(systemRandom)}`, config });
    }
    const peer: StorePair['peer'] = new PeerProcess('store');
    const readers: MeshCacheStore[] = [];
    try {
      const { plainPort } = await peer.call({ kind: 'start', clusters, poolBytes, workBytes });
      for (const { discoveryAddr, config } of clusters) {
        readers.push(await MeshCacheStore.create(benchStorage(discoveryAddr, READER_POOL_BYTES, config)));
      }
      for (const reader of readers) await awaitMembers(reader, 2);
      return new StorePair(peer, readers, plainPort as number);
    } catch (error) {
      for (const reader of readers) await reader.close();
      peer.end();
      throw error;
    }
  }

  async close(): Promise<void> {
    for (const reader of this.readers) await reader.close();
    this.peer.end();
  }
}

/**
 * The serving process of the store benchmarks: nodes, whose pools it fills with pages of the requested size, and a
 * plain socket server with the same pages in a region of its own.
 */
export function storePeer(): ExecuteCommand<PeerCommand, PeerAnswer> {
  const stores: MeshCacheStore[] = [];
  let plainPool: HostRegion | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      for (const { discoveryAddr, config } of command.clusters) {
        stores.push(await MeshCacheStore.create(benchStorage(discoveryAddr, command.poolBytes, config)));
      }
      plainPool = HostRegion.allocate(command.workBytes);
      return { plainPort: await servePlainly(plainPool.bytes()) };
    }
    if (plainPool === undefined) throw new Error('publish before start');
    const { pageBytes, pages, isComputed = false } = command;
    for (let page = 0; page < pages; page++) stampPage(plainPool.bytes(page * pageBytes, pageBytes), page);
    for (const store of stores) {
      await store.clear();
      await publishPages(store, benchKeys(pageBytes, pages), pageBytes, { isComputed });
    }
    return {};
  };
}
