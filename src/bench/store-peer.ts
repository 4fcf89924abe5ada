/*
 * The serving process of the store benchmark: nodes, whose pools it fills with pages of the size that it is asked for, and a plain
 * socket server with the same pages in a region of its own. It lives as long as its IPC channel.
 */
import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { servePlainly } from './plain-pair.js';
import { serveCommands } from './serving-process.js';
import { benchKeys, benchStorage, type PeerAnswer, type PeerCommand, stampPage } from './store-pages.js';

/** Pages that are made and set at a time. */
const SET_MAX_BYTES = 16 * 2 ** 20;

const stores: MeshCacheStore[] = [];
let plainPool: HostRegion | undefined;

async function execute(command: PeerCommand): Promise<PeerAnswer> {
  if (command.kind === 'start') {
    for (const discoveryAddr of command.discoveryAddrs) {
      stores.push(await MeshCacheStore.create(benchStorage(discoveryAddr, command.poolBytes)));
    }
    plainPool = HostRegion.allocate(command.workBytes);
    return { plainPort: await servePlainly(plainPool.bytes()) };
  }
  if (plainPool === undefined) throw new Error('publish before start');
  const { pageBytes, pages } = command;
  for (let page = 0; page < pages; page++) stampPage(plainPool.bytes(page * pageBytes, pageBytes), page);
  for (const store of stores) {
    await store.clear();
    await publish(store, command);
  }
  return {};
}

async function publish(to: MeshCacheStore, { pageBytes, pages }: { pageBytes: number; pages: number }): Promise<void> {
  const keys = benchKeys(pageBytes, pages);
  const batchPages = Math.max(1, Math.floor(SET_MAX_BYTES / pageBytes));
  using source = HostRegion.allocate(batchPages * pageBytes);
  for (let first = 0; first < pages; first += batchPages) {
    const batch = keys.slice(first, first + batchPages);
    for (let i = 0; i < batch.length; i++) stampPage(source.bytes(i * pageBytes, pageBytes), first + i);
    const ptrs = batch.map((_, i) => source.addr + BigInt(i * pageBytes));
    const results = await to.batchSet(batch, ptrs, Array(batch.length).fill(pageBytes) as number[]);
    const failed = results.filter((isSet) => !isSet).length;
    if (failed > 0) throw new Error(`${failed} pages of ${pageBytes} bytes could not be set`);
  }
}

serveCommands(execute);
