import { type SimStore, startCluster } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

simulated('joined reads: a node that stands still holds up only those who read from it', async (t, world) => {
  const config = { directory_replicas: 1, member_ttl: 60 };
  const [frozen, alive, reader] = (await startCluster(world, 3, config)) as [SimStore, SimStore, SimStore];
  const [theirs, others, missing] = ['frozen', 'alive', 'missing'].map((name) =>
    Array.from({ length: 12 }, (_, i) => `${name} ${i}`),
  ) as [string[], string[], string[]];
  for (const [i, key] of theirs.entries()) t.true(await frozen.set(key, content(i, PAGE)));
  for (const [i, key] of others.entries()) t.true(await alive.set(key, content(i, PAGE)));
  // Of those whose directory owner stands still nobody can say anything.
  const [ring] = reader.runtime.directory.rings();
  const isKnown = (key: string) => {
    const [owner] = ring?.getNodesBatch([...reader.keyEncoder.encodeKeys([key])], 1) ?? [];
    return ring?.nodes[owner as number] !== frozen.runtime.nodeId;
  };
  frozen.process.stop();
  const startMs = world.nowMs;
  const tookMs = new Map<string, number>();
  const read = async (key: string): Promise<boolean> => {
    const isRead = await reader.get(key, new Uint8Array(PAGE));
    tookMs.set(key, world.nowMs - startMs);
    return isRead;
  };
  const all = [...theirs, ...others, ...missing].filter(isKnown);
  const results = new Map(await Promise.all(all.map(async (key) => [key, await read(key)] as const)));
  for (const key of all) t.is(results.get(key), key.startsWith('alive'), key);
  for (const key of all.filter((each) => each.startsWith('alive'))) {
    t.true((tookMs.get(key) as number) < 50, `${key}: ${tookMs.get(key)} ms`);
  }
  t.true(all.some((key) => key.startsWith('frozen') && (tookMs.get(key) as number) > 1_000));
  frozen.process.continue();
});
