import { silentLogger } from '../../../src/base/environment/log.js';
import { MeshCacheClient } from '../../../src/client/meshcache-client.js';

/** Attaches to the socket of the first argument, pins the pages of the others, says how many, and stays. */
const client = await MeshCacheClient.connect({ socket: process.argv[2] as string }, { log: silentLogger });
const pinned = await client.pin(process.argv.slice(3), { forMs: 600_000 });
console.log(pinned.filter(Boolean).length);
setInterval(() => {}, 1_000_000);
