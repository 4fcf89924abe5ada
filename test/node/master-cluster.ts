import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/log.js';
import type { Network } from '../../src/base/network.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { patientClock } from '../patient-clock.js';
import type { DyingNodeSetup } from './dying-node.js';

export const HEARTBEAT_S = 0.2;
export const TTL_S = 1;
export const PAGE_BYTES = 4096;

/** A node on a host of its own of this machine. */
export interface HostSetup {
  readonly host: string;
  /** Listed discovery addresses. */
  readonly addr: string;
  readonly config?: Readonly<Record<string, unknown>>;
}

function configOf({ host, addr, config }: HostSetup): Record<string, unknown> {
  return {
    discovery_addr: addr,
    local_hostname: host,
    protocol: 'tcp',
    global_segment_size: '16mb',
    heartbeat_interval: HEARTBEAT_S,
    member_ttl: TTL_S,
    reuse_quarantine_ms: 50,
    metrics_enabled: false,
    ...config,
  };
}

/** A store in this process, closed with the test. */
export async function startStore(t: ExecutionContext, setup: HostSetup, network?: Network): Promise<MeshCacheStore> {
  const extraConfig = configOf(setup);
  const ranks = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'test' };
  const store = await MeshCacheStore.create(
    { ...ranks, extraConfig },
    { log: silentLogger, clock: patientClock, ...(network === undefined ? {} : { network }) },
  );
  t.teardown(() => store.close());
  return store;
}

/** A store in a process of its own that has set `keys` and then only lives. */
export async function startProcess(
  t: ExecutionContext,
  setup: HostSetup & { readonly keys: readonly string[] },
): Promise<{ readonly child: ChildProcess; readonly nodeId: string }> {
  const child = fork(fileURLToPath(new URL('./node-dying-node.js', import.meta.url)));
  t.teardown(() => void child.kill('SIGKILL'));
  const message: DyingNodeSetup = {
    discoveryPort: 0,
    config: configOf(setup),
    keys: setup.keys,
    pageBytes: PAGE_BYTES,
  };
  child.send(message);
  const [{ nodeId }] = (await once(child, 'message')) as [{ nodeId: string }];
  return { child, nodeId };
}
