import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { sampleIn } from './samples.js';

/** What a store's metric says now; 0 when there is none. */
export async function metricOf(
  { metrics }: MeshCacheStore,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<number> {
  return sampleIn(await metrics.renderPrometheus(), name, labels) ?? 0;
}
