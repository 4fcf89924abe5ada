import { silentLogger } from '../../../src/base/environment/log.js';
import { MeshCacheClient } from '../../../src/client/meshcache-client.js';
import { HostRegion } from '../../../src/memory/host-region.js';

/** Attaches to the socket of the first argument, sets and reads a page, and leaves the client open. */
const client = await MeshCacheClient.connect({ socket: process.argv[2] as string }, { log: silentLogger });
const memory = HostRegion.allocate(4096, { shared: true });
const isSet = await client.set('key', memory.addr, 100);
const isRead = await client.get('key', memory.addr + 1000n, 100);
console.log(isSet && isRead);
