import { createHash, timingSafeEqual } from 'node:crypto';
import type { Environment } from '../base/environment/environment.js';
import { WRONG_PASSWORDS_BURST_COUNT, WRONG_PASSWORDS_PER_S } from '../base/limits.js';
import { type AuthFailurePlane, AuthFailures } from './auth-failures.js';
import { AddressBuckets } from './connection-limits.js';

/** `paused`: too many wrong passwords have come from this address, and this one was not looked at. */
export type PasswordVerdict = 'right' | 'wrong' | 'paused';

/**
 * Compares passwords and tokens, in a time that tells nothing about the right one. After a few wrong ones an address waits: further ones from it,
 * right or wrong, are not looked at until then.
 */
export class PasswordCheck {
  readonly #right: Buffer;
  readonly #wrong: AddressBuckets;
  readonly #failures: AuthFailures;

  constructor(password: string, plane: AuthFailurePlane, env: Pick<Environment, 'clock' | 'log' | 'metrics'>) {
    this.#right = digestOf(password);
    const rate = { perS: WRONG_PASSWORDS_PER_S, burstCount: WRONG_PASSWORDS_BURST_COUNT };
    this.#wrong = new AddressBuckets(env.clock, () => rate);
    this.#failures = new AuthFailures(plane, env);
  }

  /** Judges what came from `address`, which is empty for a Unix socket. */
  judge(given: string | Uint8Array, address: string): PasswordVerdict {
    if (this.#wrong.known(address)?.has(1) === false) {
      this.#failures.record('paused', address);
      return 'paused';
    }
    // Digests have one length, and one that is partly right tells nothing about the password.
    if (timingSafeEqual(digestOf(given), this.#right)) return 'right';
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

function digestOf(text: string | Uint8Array): Buffer {
  return createHash('sha256').update(text).digest();
}
