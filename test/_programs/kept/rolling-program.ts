/**
 * A node with its load: it sets its share of the conversations, then reads prefixes of all, and tells its parent ten
 * times a second how many pages it has asked for and found. Ends when it was drained, or at SIGTERM.
 */

import { seededRandom } from '../../../src/base/environment/random.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { createStore } from '../../_support/node/store-fixture.js';
import { content } from '../../_support/support.js';

export interface RollingSetup {
  readonly port: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly node: number;
  readonly nodes: number;
  readonly conversations: number;
  readonly pages: number;
  readonly pageBytes: number;
  /** Whether the node is to set its share. */
  readonly isNew: boolean;
}

export type RollingReport =
  | { readonly kind: 'ready'; readonly nodeId: string; readonly found: number }
  | { readonly kind: 'load'; readonly asked: number; readonly found: number; readonly wrong: number };

const REPORT_MS = 100;

function tell(report: RollingReport): void {
  process.send?.(report);
}

process.once('message', async (setup: RollingSetup) => {
  const { port, config, node, nodes, conversations, pages, pageBytes, isNew } = setup;
  const keysOf = (conversation: number): string[] => Array.from({ length: pages }, (_, i) => `${conversation} ${i}`);
  const pageOf = (conversation: number, i: number): Uint8Array => content(conversation * pages + i, pageBytes);
  const store = await createStore(port, config, systemClock);
  const { poolEntries } = store.stats();
  for (let conversation = node; conversation < conversations && isNew; conversation += nodes) {
    for (const [i, key] of keysOf(conversation).entries()) await store.set(key, pageOf(conversation, i));
  }
  tell({ kind: 'ready', nodeId: store.runtime.nodeId, found: poolEntries });
  let [asked, found, wrong] = [0, 0, 0];
  let isEnding = false;
  process.once('message', async () => {
    const random = seededRandom(node + 1);
    const timer = setInterval(() => {
      tell({ kind: 'load', asked, found, wrong });
      [asked, found, wrong] = [0, 0, 0];
    }, REPORT_MS);
    while (!isEnding) {
      const conversation = random.u32() % conversations;
      const keys = keysOf(conversation);
      let there = 0;
      let read: readonly (Uint8Array | null)[] = [];
      try {
        there = await store.batchExists(keys);
        read = await store.getMany(keys.slice(0, there));
      } catch (error) {
        // The node was closed meanwhile.
        if (!isEnding) throw error;
      }
      let hits = 0;
      while (hits < there && read[hits] !== null) hits++;
      if (isEnding) break;
      asked += pages;
      found += hits;
      for (let i = 0; i < hits; i++) {
        if (Buffer.compare(read[i] as Uint8Array, pageOf(conversation, i)) !== 0) wrong++;
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    clearInterval(timer);
  });
  const end = async (): Promise<void> => {
    isEnding = true;
    await store.close();
    process.exit();
  };
  void store.drained.then(end);
  process.once('SIGTERM', end);
  // The load of this node is moved to others before it is drained.
  process.on('SIGUSR2', () => {
    isEnding = true;
  });
});
process.once('disconnect', () => process.exit());
