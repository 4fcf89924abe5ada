import { timingSafeEqual } from 'node:crypto';
import type { Environment } from '../base/environment/environment.js';
import { WRONG_PASSWORDS_BURST_COUNT, WRONG_PASSWORDS_PER_S } from '../base/limits.js';
import { type AuthFailurePlane, AuthFailures } from './auth-failures.js';
import { AddressBuckets } from './connection-limits.js';
import { digestOf } from './users/users.js';

/**
 * Why a password or token is nobody's. `paused`: too many wrong ones have come from this address, and this one was not
 * looked at.
 */
export type WrongPassword = 'wrong' | 'paused';

/**
 * Finds whose a password or token is, by its digest, in a time that tells nothing about the right one. After a few
 * wrong ones an address waits: further ones from it, right or wrong, are not looked at until then.
 */
export class PasswordCheck<T extends object> {
  readonly #ownerOf: (digest: string) => T | undefined;
  readonly #wrong: AddressBuckets;
  readonly #failures: AuthFailures;

  /** `ownerOf` finds whose a digest is; undefined: nobody's. */
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
   * Finds the owner of what came from `address`; for a client at a Unix socket, this is any text that tells it from
   * others.
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

  /** Throws `InvariantError` unless what is remembered of addresses is consistent. */
  verify(): void {
    this.#wrong.verify('passwords');
  }
}

/**
 * Whether a digest is that of `password`. Digests have one length, and one that is partly right tells nothing about the
 * password.
 */
export function isDigestOf(password: string): (digest: string) => boolean {
  const right = Buffer.from(digestOf(password));
  return (digest) => timingSafeEqual(Buffer.from(digest), right);
}
