import { startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { staleDirectoryCase } from '../contract/stale-directory.js';

for (const verifyReads of [true, false]) {
  simulated(
    `stale directory: over TCP, verify_reads ${verifyReads}: what is freed is not read, however it was freed`,
    (t, world) =>
      staleDirectoryCase(t, {
        createStore: (config) => startStore(world, { config: { ...config, verify_reads: verifyReads } }),
        until: (condition) => world.until(condition),
      }),
  );
}
