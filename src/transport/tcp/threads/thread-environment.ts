import { SparseAudit } from '../../../base/environment/audit.js';
import { ClusterSecrets, TlsIdentity } from '../../../base/environment/credentials.js';
import type { Environment } from '../../../base/environment/environment.js';
import { type Labels, noMetrics } from '../../../base/environment/metrics-sink.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import { AuthFailures } from '../../../net/auth-failures.js';
import { systemClock } from '../../../system/system-clock.js';
import { systemEnvironment } from '../../../system/system-environment.js';
import { logNodeWarnings } from '../../../system/system-log.js';
import { tlsNetwork } from '../../../system/system-network.js';
import { startOfThread } from '../../../system/system-threads.js';
import { withDscp } from './marked-network.js';
import type { ThreadReport, ThreadSetup } from './thread-messages.js';

/**
 * Delay before counts are sent to the other thread together, so that a flood of connections does not become a flood of
 * messages.
 */
const COUNTS_DELAY_MS = 200;

/** Runs a program of the transport on this thread, which its first module calls. */
export function runOnThread<Setup extends ThreadSetup>(
  program: (setup: Setup, messages: MessageEnd, env: Environment) => Promise<void>,
): void {
  logNodeWarnings();
  const { data, messages } = startOfThread();
  const setup = data as Setup;
  void program(
    setup,
    messages,
    threadEnvironment(setup, (report) => messages.post(report)),
  );
}

/**
 * The environment of a thread of the transport: the real machine, except that log records, counts and audit events go
 * to `report`.
 */
function threadEnvironment({ secrets, tls, dscp }: ThreadSetup, report: (report: ThreadReport) => void): Environment {
  const counts = new Map<string, { readonly name: string; readonly labels: Labels; amount: number }>();
  const sendCounts = (): void => {
    for (const count of counts.values()) report({ type: 'count', ...count });
    counts.clear();
  };
  const audit = new SparseAudit(systemClock, (event, count) => report({ type: 'audit', event, count }));
  const env = systemEnvironment({
    audit,
    log: { log: (level, message, fields) => report({ type: 'log', level, message, fields }) },
    metrics: {
      ...noMetrics,
      count(name, amount = 1, labels = {}) {
        const key = JSON.stringify([name, labels]);
        const count = counts.get(key);
        if (count !== undefined) {
          count.amount += amount;
          return;
        }
        if (counts.size === 0) env.clock.after(COUNTS_DELAY_MS, sendCounts);
        counts.set(key, { name, labels, amount });
      },
    },
    secrets: secrets === undefined ? undefined : ClusterSecrets.of(secrets),
  });
  if (tls === undefined) return withDscp(env, dscp);
  const failures = new AuthFailures('data', env, 'data');
  const identity = new TlsIdentity(tls);
  const network = tlsNetwork(identity, (address) => failures.record('tls', address));
  return withDscp({ ...env, tls: identity, network }, dscp);
}
