import type { ExecutionContext } from 'ava';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { patientClock } from '../patient-clock.js';
import { freePort } from '../support.js';
import { verifiedEnd } from '../verified.js';
import { storageOf } from './store-fixture.js';

/** A node alone in its cluster, and the lines of its log, each as one text. */
export async function startRecorded(
  t: ExecutionContext,
  extra: Record<string, unknown>,
): Promise<{ readonly store: MeshCacheStore; readonly lines: readonly string[] }> {
  const lines: string[] = [];
  const store = await MeshCacheStore.create(storageOf(await freePort(), extra), {
    log: { log: (level, message, fields) => lines.push(JSON.stringify({ level, message, ...fields })) },
    clock: patientClock,
  });
  t.teardown(() => verifiedEnd([store], () => store.close()));
  return { store, lines };
}
