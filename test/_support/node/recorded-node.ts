import type { ExecutionContext } from 'ava';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { patientClock } from '../patient-clock.js';
import { freePort } from '../support.js';
import { verifiedEnd } from '../verified.js';

/** A node alone in its cluster, and the lines of its log, each as one text. */
export async function startRecorded(
  t: ExecutionContext,
  extra: Record<string, unknown>,
): Promise<{ readonly store: MeshCacheStore; readonly lines: readonly string[] }> {
  const lines: string[] = [];
  const store = await MeshCacheStore.create(
    {
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      modelName: 'test',
      extraConfig: {
        discovery_addr: `127.0.0.1:${await freePort()}`,
        protocol: 'tcp',
        global_segment_size: '16mb',
        heartbeat_interval: 0.2,
        member_ttl: 3,
        metrics_enabled: false,
        ...extra,
      },
    },
    {
      log: { log: (level, message, fields) => lines.push(JSON.stringify({ level, message, ...fields })) },
      clock: patientClock,
    },
  );
  t.teardown(() => verifiedEnd([store], () => store.close()));
  return { store, lines };
}
