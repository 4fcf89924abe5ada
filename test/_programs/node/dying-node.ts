// A node of its own process that sets some pages and then does nothing but live, until it is killed.
import { systemClock } from '../../../src/system/system-clock.js';
import { createStore } from '../../_support/node/store-fixture.js';
import { content } from '../../_support/support.js';

export interface DyingNodeSetup {
  readonly discoveryPort: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly keys: readonly string[];
  readonly pageBytes: number;
}

/** Tells the node to keep its only thread busy. */
export interface DyingNodeMessage {
  readonly busyMs: number;
}

process.once('message', async (setup: DyingNodeSetup) => {
  // After a freeze the node must notice the time that it has lost.
  const store = await createStore(setup.discoveryPort, setup.config, systemClock);
  for (const [i, key] of setup.keys.entries()) await store.set(key, content(i, setup.pageBytes));
  process.send?.({ nodeId: store.runtime.nodeId });
  process.on('message', ({ busyMs }: DyingNodeMessage) => {
    for (const untilMs = performance.now() + busyMs; performance.now() < untilMs; );
  });
});
process.once('disconnect', () => process.exit());
