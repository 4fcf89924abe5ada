import { HostRegion } from '../../memory/host-region.js';
import { TransferEngine } from '../../native/transfer-engine.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { benchKeys, benchStorage, publishPages, stampPage } from '../measuring/store-pages.js';

export type RdmaPeerCommand =
  | {
      readonly kind: 'start';
      readonly host: string;
      readonly workBytes: number;
      readonly poolBytes: number;
      readonly discoveryAddr: string;
    }
  /** Fills the region and the pool with pages of this size. */
  | { readonly kind: 'publish'; readonly pageBytes: number };

export interface RdmaPeerAnswer {
  readonly error?: string;
  readonly endpoint?: string;
  /** Address of the region as decimal text. */
  readonly addr?: string;
  readonly rkey?: number;
}

/**
 * The serving process of the RDMA benchmark: one region that an engine serves, and a node whose pool it fills with the
 * same pages.
 */
export function rdmaPeer(): ExecuteCommand<RdmaPeerCommand, RdmaPeerAnswer> {
  let region: HostRegion | undefined;
  let store: MeshCacheStore | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      const { host, workBytes, poolBytes, discoveryAddr } = command;
      region = HostRegion.allocate(workBytes);
      await region.prefault();
      const engine = new TransferEngine({ bindHost: host });
      const { addr, rkey } = engine.registerMr(region.addr, region.length);
      store = await MeshCacheStore.create(
        benchStorage(discoveryAddr, poolBytes, { protocol: 'rdma', local_hostname: host }),
      );
      return { endpoint: engine.localEndpoint(), addr: addr.toString(), rkey };
    }
    if (region === undefined || store === undefined) throw new Error('publish before start');
    const { pageBytes } = command;
    const pages = Math.floor(region.length / pageBytes);
    for (let page = 0; page < pages; page++) stampPage(region.bytes(page * pageBytes, pageBytes), page);
    await store.clear();
    await publishPages(store, benchKeys(pageBytes, pages), pageBytes);
    return {};
  };
}
