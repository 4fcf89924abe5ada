// A node process of the overwrite test: `owner` publishes new pages as fast as it can into a pool that holds few of
// them, `reader` reads the newest ones and checks every byte. Ends when its IPC channel does.

import { PageContent } from '../../../src/cli/cluster/page-content.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { createStore } from '../../_support/node/store-fixture.js';

export interface OverwriteSetup {
  readonly role: 'owner' | 'reader';
  readonly discoveryPort: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly pageBytes: number;
}

export type OverwriteMessage =
  | { readonly kind: 'ready' }
  /** Pages published so far; the newest has the number `front - 1`. */
  | { readonly kind: 'front'; readonly front: number }
  /** Progress of a reader, after each batch that has found pages. */
  | ({ readonly kind: 'progress' } & OverwriteProgress)
  | ({ readonly kind: 'result' } & OverwriteResult);

export interface OverwriteProgress {
  readonly hits: number;
  readonly wrongPages: number;
  readonly staleReads: number;
}

export interface OverwriteResult {
  readonly reads: number;
  readonly hits: number;
  /** Pages for which a read returned true although they were wrong. */
  readonly wrongPages: number;
  /** Stale pages that were caught as misses. */
  readonly staleReads: number;
  readonly published: number;
  readonly earlyReuses: number;
}

const BATCH_PAGES = 16;

export function pageKey(number: number): string {
  return ((BigInt(number) * 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn).toString(16).padStart(16, '0');
}

function send(message: OverwriteMessage): void {
  process.send?.(message);
}

async function main(setup: OverwriteSetup): Promise<void> {
  // A reader that was kept from running must notice that its read took too long.
  const store = await createStore(setup.discoveryPort, setup.config, systemClock);
  const region = HostRegion.allocate(BATCH_PAGES * setup.pageBytes);
  const content = new PageContent();
  const ptrs = Array.from({ length: BATCH_PAGES }, (_, i) => region.addr + BigInt(i * setup.pageBytes));
  const sizes = ptrs.map(() => setup.pageBytes);
  const page = (i: number) => region.bytes(i * setup.pageBytes, setup.pageBytes);
  let front = 0;
  let reads = 0;
  let hits = 0;
  let wrongPages = 0;
  let stopped = false;
  process.on('message', (message: { front?: number; stop?: boolean }) => {
    if (message.front !== undefined && setup.role === 'reader') front = message.front;
    if (message.stop === true) stopped = true;
  });
  send({ kind: 'ready' });

  while (!stopped) {
    const first = setup.role === 'owner' ? front : Math.max(0, front - BATCH_PAGES);
    const keys = ptrs.map((_, i) => pageKey(first + i));
    if (setup.role === 'owner') {
      keys.forEach((key, i) => {
        content.fill(page(i), key);
      });
      const results = await store.batchSet(keys, ptrs, sizes);
      if (results.every(Boolean)) {
        front += BATCH_PAGES;
        send({ kind: 'front', front });
      }
    } else if (front > 0) {
      const read = await store.batchGet(keys, ptrs, sizes);
      reads += keys.length;
      read.forEach((hit, i) => {
        if (!hit) return;
        hits++;
        if (content.wrongBytes(page(i), keys[i] as string) > 0) wrongPages++;
      });
      const { staleReads } = store.stats();
      if (hits + staleReads > 0) send({ kind: 'progress', hits, wrongPages, staleReads });
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { staleReads, earlyReuses } = store.stats();
  send({ kind: 'result', reads, hits, wrongPages, staleReads, published: front, earlyReuses });
  await store.close();
  region.free();
  process.disconnect();
}

process.once('message', (setup: OverwriteSetup) => void main(setup));
process.once('disconnect', () => process.exit());
