import type { AuditDoor } from '../base/environment/audit.js';
import type { Environment } from '../base/environment/environment.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { AuthError } from '../base/errors.js';

/** Why authentication failed; a label of `meshcache_auth_failures_total`. */
export type AuthFailureReason =
  | 'missing'
  | 'unexpected'
  | 'wrong'
  | 'refused'
  | 'misdirected'
  | 'tls'
  | 'wrong_password'
  | 'paused';

/** The plane, or the door, at which authentication failed; a label of `meshcache_auth_failures_total`. */
export type AuthFailurePlane = 'rpc' | 'data' | 'rdma' | 'client' | 'resp' | 'metrics';

const TEXTS: Readonly<Record<AuthFailureReason, string>> = {
  missing: 'the peer has no cluster_secret, but this node has one; set the same secret on all nodes',
  unexpected: 'the peer requires authentication; set its cluster_secret on this node',
  wrong: 'the peer does not know the cluster_secret of this node',
  refused: 'the peer ended the handshake; its cluster_secret may differ from that of this node',
  misdirected:
    'the address that the client has dialled is not the one that this server tells others (see local_hostname), or somebody passes connections on',
  wrong_password: 'a wrong password or token',
  paused: 'too many wrong passwords or tokens from this address: further ones are not looked at for a moment',
  tls: 'the TLS handshake failed; certificates of all nodes must be valid and signed by tls_ca_file',
};

/** The error for a failed authentication. It is retryable, because the peer or a secret may be changed. */
export function authError(reason: AuthFailureReason, peer: string): AuthError {
  return new AuthError(`${peer}: ${TEXTS[reason]}`, { retryable: true });
}

/**
 * Counts failures and logs them, sparsely for each reason, and has them in the audit log if somebody was refused at a
 * door.
 */
export class AuthFailures {
  readonly #plane: AuthFailurePlane;
  readonly #door: AuditDoor | undefined;
  readonly #env: Pick<Environment, 'metrics' | 'audit'>;
  readonly #log: SparseLog;

  /** `door`: undefined for the side that connects, and where whoever asks says more of the one that is refused. */
  constructor(
    plane: AuthFailurePlane,
    env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'audit'>,
    door?: AuditDoor,
  ) {
    this.#plane = plane;
    this.#env = env;
    this.#door = door;
    this.#log = new SparseLog(env);
  }

  /**
   * Counts and logs a failure; `peer` is the peer's address, without its port, `text` says more than the reason does.
   */
  record(reason: AuthFailureReason, peer: string, text = TEXTS[reason]): void {
    const door = this.#door;
    const { metrics, audit } = this.#env;
    if (door !== undefined) {
      audit?.record({ action: 'connect', door, outcome: 'refused', actor: { address: peer }, reason });
    }
    metrics.count('meshcache_auth_failures_total', 1, { plane: this.#plane, reason });
    this.#log.log('warn', 'authentication failed', { plane: this.#plane, peer, reason: text }, text);
  }
}
