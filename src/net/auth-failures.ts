import { timingSafeEqual } from 'node:crypto';
import type { AuditDoor } from '../base/environment/audit.js';
import type { Environment } from '../base/environment/environment.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { AuthError } from '../base/errors.js';
import { WRONG_PASSWORDS_BURST_COUNT, WRONG_PASSWORDS_PER_S } from '../base/limits.js';
import { AddressBuckets } from './connection-limits.js';
import { digestOf } from './users.js';

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

/** Returns the error for a failed authentication. It is retryable, because the peer or a secret may change. */
export function authError(reason: AuthFailureReason, peer: string): AuthError {
  return new AuthError(`${peer}: ${TEXTS[reason]}`, { retryable: true });
}

/**
 * Counts failures and logs them, rate-limited per reason. Records them in the audit log if a client was refused at a
 * door.
 */
export class AuthFailures {
  readonly #plane: AuthFailurePlane;
  readonly #door: AuditDoor | undefined;
  readonly #env: Pick<Environment, 'metrics' | 'audit'>;
  readonly #log: SparseLog;

  /** `door`: undefined for the connecting side, and where the caller itself writes a more detailed audit record. */
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

  /** Counts and logs a failure. `peer` is the peer's address without its port; `text` may say more than the reason. */
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

/**
 * Why a password or token was not accepted. `paused`: too many wrong ones came from this address, and this one was not
 * checked.
 */
export type WrongPassword = 'wrong' | 'paused';

/**
 * Finds the owner of a password or token by its digest, in a time that reveals nothing about the right one. After a few
 * wrong ones an address must wait: until then its further ones, right or wrong, are not checked.
 */
export class PasswordCheck<T extends object> {
  readonly #ownerOf: (digest: string) => T | undefined;
  readonly #wrong: AddressBuckets;
  readonly #failures: AuthFailures;

  /** `ownerOf` finds the owner of a digest; undefined if it has none. */
  constructor(
    ownerOf: (digest: string) => T | undefined,
    plane: AuthFailurePlane,
    env: Pick<Environment, 'clock' | 'log' | 'metrics'>,
  ) {
    this.#ownerOf = ownerOf;
    const rate = { perS: WRONG_PASSWORDS_PER_S, burstCount: WRONG_PASSWORDS_BURST_COUNT };
    this.#wrong = new AddressBuckets(env.clock, () => rate);
    this.#failures = new AuthFailures(plane, env);
  }

  /**
   * Finds the owner of a secret that came from `address`. For a client at a Unix socket, `address` is any text that
   * tells it from others.
   */
  judge(given: string | Uint8Array, address: string): T | WrongPassword {
    if (this.#wrong.known(address)?.has(1) === false) {
      this.#failures.record('paused', address);
      return 'paused';
    }
    const owner = this.#ownerOf(digestOf(given));
    if (owner !== undefined) return owner;
    const bucket = this.#wrong.of(address);
    if (bucket.has(1)) bucket.take(1);
    this.#failures.record('wrong_password', address);
    return 'wrong';
  }

  /** Throws `InvariantError` unless the remembered addresses are consistent. */
  verify(): void {
    this.#wrong.verify('passwords');
  }
}

/**
 * Returns a function that compares a digest with that of `password` in constant time. All digests have the same length,
 * and a partly right one reveals nothing about the password.
 */
export function isDigestOf(password: string): (digest: string) => boolean {
  const right = Buffer.from(digestOf(password));
  return (digest) => timingSafeEqual(Buffer.from(digest), right);
}
