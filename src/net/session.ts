/**
 * Keys of one connection whose sides have proved that they know the cluster's secret. Every frame that follows carries
 * tags under them (`src/memory/frame-tags.ts`), so that a program between the two sides can pass frames on and cannot
 * make, change, repeat, drop or reorder any.
 *
 *     key = HKDF-SHA-256(secret, salt: SHA-256(client's greeting | server's greeting), info: "meshcache keys 1 <plane> <sender>")
 */
import { createHash, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';

const KEY_BYTES = 32;

/** The keys of both directions of a connection. */
export interface SessionKeys {
  readonly sent: KeyObject;
  readonly received: KeyObject;
}

/** What the keys of a connection are derived from; both sides have the same. */
export interface SessionFacts {
  readonly plane: string;
  /** The secret that both sides have proved to know. */
  readonly secret: string;
  /** The client's, then the server's. */
  readonly greetings: readonly Buffer[];
}

/** Derives the keys of a connection for the side that is its `role`. */
export function sessionKeys({ plane, secret, greetings }: SessionFacts, role: 'client' | 'server'): SessionKeys {
  const hash = createHash('sha256');
  for (const greeting of greetings) hash.update(greeting);
  const salt = hash.digest();
  const keyOf = (sender: 'client' | 'server'): KeyObject => {
    const info = `meshcache keys 1 ${plane} ${sender}`;
    return createSecretKey(Buffer.from(hkdfSync('sha256', secret, salt, info, KEY_BYTES)));
  };
  const client = keyOf('client');
  const server = keyOf('server');
  return role === 'client' ? { sent: client, received: server } : { sent: server, received: client };
}
