import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { servePlainly } from '../measuring/plain-pair.js';
import {
  benchKeys,
  benchStorage,
  type PeerAnswer,
  type PeerCommand,
  publishPages,
  stampPage,
} from '../measuring/store-pages.js';

/**
 * The serving process of benchmarks of the store: nodes, whose pools it fills with pages of the size that it is asked
 * for, and a plain socket server with the same pages in a region of its own.
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
