import type { Environment } from '../base/environment/environment.js';
import { AuthError } from '../base/errors.js';
import { AUTH_LOG_INTERVAL_MS } from '../base/limits.js';

/** Why two nodes do not talk; a label of `meshcache_auth_failures_total`. */
export type AuthFailureReason = 'missing' | 'unexpected' | 'wrong' | 'refused' | 'tls';

/** Where it happened; a label of the same metric. */
export type AuthFailurePlane = 'rpc' | 'data' | 'rdma';

const TEXTS: Readonly<Record<AuthFailureReason, string>> = {
  missing: 'the peer has no cluster_secret and this node has one; set the same on all nodes',
  unexpected: 'the peer wants authentication: set cluster_secret',
  wrong: 'the peer does not know the cluster_secret of this node',
  refused: 'the peer ended the handshake; it may have another cluster_secret than this node',
  tls: 'the TLS handshake failed; certificates of all nodes must be valid and signed by tls_ca_file',
};

/** Retryable: the peer, or the secret of either, may be another one the next time. */
export function authError(reason: AuthFailureReason, peer: string): AuthError {
  return new AuthError(`${peer}: ${TEXTS[reason]}`, { retryable: true });
}

/** Counts failures, and says them in the log: at most one record of each reason in AUTH_LOG_INTERVAL_MS, the rest as a number. */
export class AuthFailures {
  readonly #plane: AuthFailurePlane;
  readonly #env: Pick<Environment, 'clock' | 'log' | 'metrics'>;
  readonly #last = new Map<AuthFailureReason, { readonly atMs: number; suppressed: number }>();

  constructor(plane: AuthFailurePlane, env: Pick<Environment, 'clock' | 'log' | 'metrics'>) {
    this.#plane = plane;
    this.#env = env;
  }

  /** `peer`: its address. */
  record(reason: AuthFailureReason, peer: string): void {
    const { clock, log, metrics } = this.#env;
    metrics.count('meshcache_auth_failures_total', 1, { plane: this.#plane, reason });
    const last = this.#last.get(reason);
    const nowMs = clock.nowMs();
    if (last !== undefined && nowMs - last.atMs < AUTH_LOG_INTERVAL_MS) {
      last.suppressed++;
      return;
    }
    this.#last.set(reason, { atMs: nowMs, suppressed: 0 });
    log.log('warn', 'authentication failed', {
      plane: this.#plane,
      peer,
      reason: TEXTS[reason],
      more_like_it: last?.suppressed || undefined,
    });
  }
}
