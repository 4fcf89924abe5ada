import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { sampleIn } from './samples.js';

/** The present value of a store's metric; 0 if there is none. */
export async function metricOf(
  { metrics }: MeshCacheStore,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<number> {
  return sampleIn(await metrics.renderPrometheus(), name, labels) ?? 0;
}
