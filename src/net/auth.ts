/**
 * How two nodes prove to each other that they know the cluster's secret, the same on every connection of the control plane and
 * of the TCP data plane. `src/rpc/PROTOCOL.md` has the order of the messages.
 *
 *     greeting  [the plane's hello, with FLAG_AUTHENTICATION][nonce 32]          each way
 *     proofs    [proof 32][proof 32]                                             client to server
 *     answer    [proof 32]                                                       server to client
 *
 *     proof = HMAC-SHA-256(secret, "meshcache auth 1 <plane> <role>" 00 | client's greeting | server's greeting)
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { ClusterSecrets } from '../base/environment/cluster-secrets.js';
import type { RandomSource } from '../base/environment/random.js';
import { SECRETS_MAX_COUNT } from '../base/limits.js';

/** What is behind the connection: a proof for one plane is none for the other. */
export type AuthPlane = 'rpc' | 'data';
type Role = 'client' | 'server';

/** In the flags of a hello: a nonce follows, and proofs are wanted. */
export const FLAG_AUTHENTICATION = 1;
export const NONCE_BYTES = 32;
export const PROOF_BYTES = 32;
/** A client proves each secret that it has; where it has one, the rest is filled with noise. */
export const PROOFS_BYTES = SECRETS_MAX_COUNT * PROOF_BYTES;

interface Parts {
  readonly plane: AuthPlane;
  readonly secrets: ClusterSecrets;
  readonly random: RandomSource;
  /** The own hello, with FLAG_AUTHENTICATION. */
  readonly hello: Buffer;
}

/** The connecting side of one connection. */
export class ClientHandshake {
  /** What to open the connection with. */
  readonly greeting: Buffer;
  readonly #parts: Parts;
  #serverGreeting: Buffer = Buffer.alloc(0);

  constructor(parts: Parts) {
    this.#parts = parts;
    this.greeting = greetingOf(parts);
  }

  /** PROOFS_BYTES to answer the server's greeting with. */
  prove(serverGreeting: Buffer): Buffer {
    this.#serverGreeting = Buffer.from(serverGreeting);
    const proofs = this.#proofs('client');
    const missing = SECRETS_MAX_COUNT - proofs.length;
    return Buffer.concat([...proofs, this.#parts.random.bytes(missing * PROOF_BYTES)]);
  }

  /** Whether the server has proved itself: nothing that it says counts before. */
  isAnsweredBy(proof: Buffer): boolean {
    return indexOfMatch(this.#proofs('server'), [proof]) >= 0;
  }

  #proofs(role: Role): Buffer[] {
    return proofsOf(this.#parts, role, [this.greeting, this.#serverGreeting]);
  }
}

/** The accepting side of one connection. */
export class ServerHandshake {
  /** What to answer the client's greeting with, or to open the connection with where nobody waits for the other. */
  readonly greeting: Buffer;
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.greeting = greetingOf(parts);
  }

  /** The answer to proofs of a secret that is accepted, under the same one; undefined: close without a word. */
  answer(clientGreeting: Buffer, proofs: Buffer): Buffer | undefined {
    const greetings = [clientGreeting, this.greeting];
    const given = Array.from({ length: SECRETS_MAX_COUNT }, (_, i) =>
      proofs.subarray(i * PROOF_BYTES, (i + 1) * PROOF_BYTES),
    );
    const match = indexOfMatch(proofsOf(this.#parts, 'client', greetings), given);
    return match < 0 ? undefined : proofsOf(this.#parts, 'server', greetings)[match];
  }
}

function greetingOf({ hello, random }: Parts): Buffer {
  return Buffer.concat([hello, random.bytes(NONCE_BYTES)]);
}

/** One for each secret. Greetings have one length on each plane, so that no two pairs of them look the same in a row. */
function proofsOf({ plane, secrets }: Parts, role: Role, greetings: readonly Buffer[]): Buffer[] {
  return secrets.reveal().map((secret) => {
    const hmac = createHmac('sha256', secret).update(`meshcache auth 1 ${plane} ${role}\0`);
    for (const greeting of greetings) hmac.update(greeting);
    return hmac.digest();
  });
}

/** Which of `expected` is among `given`, -1 for none. Takes the same time whatever the bytes are. */
function indexOfMatch(expected: readonly Buffer[], given: readonly Buffer[]): number {
  let match = -1;
  for (const [i, right] of expected.entries()) {
    for (const proof of given) {
      const isSame = timingSafeEqual(right, proof);
      match = isSame ? i : match;
    }
  }
  return match;
}
