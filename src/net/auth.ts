import { createHash, createHmac, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { ClusterSecrets } from '../base/environment/credentials.js';
import type { RandomSource } from '../base/environment/random.js';
import { SECRETS_MAX_COUNT } from '../base/limits.js';

/**
 * Mutual proof of two nodes that they know the cluster's secret; the same on every connection of the control plane and
 * of the TCP data plane. `src/rpc/PROTOCOL.md` has the order of the messages.
 *
 *     greeting  [the plane's hello, with FLAG_AUTHENTICATION][nonce 32][target 32]    each way
 *     proofs    [proof 32][proof 32]                                                  client to server
 *     answer    [proof 32]                                                            server to client
 *
 *     target = SHA-256("meshcache target 1 " + what the client means to reach, or what the server is)
 *     proof  = HMAC-SHA-256(secret, "meshcache auth 1 <plane> <role>" 00 | client's greeting | server's greeting)
 */

/** The plane of a connection. A proof for one plane is not valid on the other. */
export type AuthPlane = 'rpc' | 'data';
type Role = 'client' | 'server';

/** Flag of a hello: a nonce and a target follow, and proofs are required. */
export const FLAG_AUTHENTICATION = 1;
const NONCE_BYTES = 32;
const TARGET_BYTES = 32;
/** Bytes after the hello in a greeting: nonce and target. */
export const CHALLENGE_BYTES = NONCE_BYTES + TARGET_BYTES;
export const PROOF_BYTES = 32;
/** A client proves each secret that it has. If it has only one, the rest is filled with random bytes. */
export const PROOFS_BYTES = SECRETS_MAX_COUNT * PROOF_BYTES;

interface Parts {
  readonly plane: AuthPlane;
  readonly secrets: ClusterSecrets;
  readonly random: RandomSource;
  /** This side's hello, with FLAG_AUTHENTICATION. */
  readonly hello: Buffer;
  /** The server that the client means to reach, or that this server is, such as `control 10.0.0.1:18500`. */
  readonly target: string;
}

/** Why a handshake failed. `misdirected`: the client means to reach another server. */
type HandshakeFault = 'wrong' | 'misdirected';

/** The connecting side of one connection. */
export class ClientHandshake {
  /** Bytes that open the connection. */
  readonly greeting: Buffer;
  readonly #parts: Parts;
  #serverGreeting: Buffer = Buffer.alloc(0);

  constructor(parts: Parts) {
    this.#parts = parts;
    this.greeting = greetingOf(parts);
  }

  /**
   * Returns PROOFS_BYTES that answer the server's greeting; undefined if it is not the server that the client means.
   */
  prove(serverGreeting: Buffer): Buffer | undefined {
    if (!targetIn(serverGreeting).equals(targetIn(this.greeting))) return undefined;
    this.#serverGreeting = Buffer.from(serverGreeting);
    const proofs = this.#proofs('client');
    const missing = SECRETS_MAX_COUNT - proofs.length;
    return Buffer.concat([...proofs, this.#parts.random.bytes(missing * PROOF_BYTES)]);
  }

  /**
   * Returns the keys of the connection if the server has proved itself. Nothing that the server sends is trusted
   * before.
   */
  answered(proof: Buffer): SessionKeys | undefined {
    const match = indexOfMatch(this.#proofs('server'), [proof]);
    return match < 0
      ? undefined
      : sessionKeys(factsOf(this.#parts, match, [this.greeting, this.#serverGreeting]), 'client');
  }

  #proofs(role: Role): Buffer[] {
    return proofsOf(this.#parts, role, [this.greeting, this.#serverGreeting]);
  }
}

/** The accepting side of one connection. */
export class ServerHandshake {
  /** Bytes that answer the client's greeting, or that open the connection if neither side waits for the other. */
  readonly greeting: Buffer;
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.greeting = greetingOf(parts);
  }

  /**
   * Returns the answer to the proofs and the keys of the connection, under the secret that both sides know. On a fault,
   * the connection must be closed without a message.
   */
  answer(
    clientGreeting: Buffer,
    proofs: Buffer,
  ): { readonly proof: Buffer; readonly keys: SessionKeys } | HandshakeFault {
    const greetings = [clientGreeting, this.greeting];
    const given = Array.from({ length: SECRETS_MAX_COUNT }, (_, i) =>
      proofs.subarray(i * PROOF_BYTES, (i + 1) * PROOF_BYTES),
    );
    const match = indexOfMatch(proofsOf(this.#parts, 'client', greetings), given);
    if (match < 0) return 'wrong';
    if (!targetIn(clientGreeting).equals(targetIn(this.greeting))) return 'misdirected';
    const proof = proofsOf(this.#parts, 'server', greetings)[match] as Buffer;
    return { proof, keys: sessionKeys(factsOf(this.#parts, match, greetings), 'server') };
  }
}

function greetingOf({ hello, random, target }: Parts): Buffer {
  const digest = createHash('sha256').update(`meshcache target 1 ${target}`).digest();
  return Buffer.concat([hello, random.bytes(NONCE_BYTES), digest]);
}

/** Returns the digest of the target, which is the end of a greeting. */
function targetIn(greeting: Buffer): Buffer {
  return greeting.subarray(greeting.length - TARGET_BYTES);
}

/**
 * Returns one proof per secret. All greetings of a plane have the same length, so that no two pairs of them give the
 * same input.
 */
function proofsOf({ plane, secrets }: Parts, role: Role, greetings: readonly Buffer[]): Buffer[] {
  return secrets.reveal().map((secret) => {
    const hmac = createHmac('sha256', secret).update(`meshcache auth 1 ${plane} ${role}\0`);
    for (const greeting of greetings) hmac.update(greeting);
    return hmac.digest();
  });
}

function factsOf({ plane, secrets }: Parts, secretIndex: number, greetings: readonly Buffer[]): SessionFacts {
  return { plane, secret: secrets.reveal()[secretIndex] as string, greetings };
}

/**
 * Returns the index of the element of `expected` that is among `given`, or -1. Takes the same time whatever the bytes
 * are.
 */
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

/**
 * Keys of one connection whose sides have proved that they know the cluster's secret. Every later frame carries tags
 * under these keys (`src/memory/frame-tags.ts`). A program between the two sides can thus pass on frames, but cannot
 * make, change, repeat, drop or reorder any.
 *
 *     key = HKDF-SHA-256(secret, salt: SHA-256(client's greeting | server's greeting), info: "meshcache keys 1 <plane> <sender>")
 */

const KEY_BYTES = 32;

/** The keys of both directions of a connection. */
export interface SessionKeys {
  readonly sent: KeyObject;
  readonly received: KeyObject;
}

/** Input from which both sides derive the keys of a connection. */
interface SessionFacts {
  readonly plane: string;
  /** The secret that both sides have proved to know. */
  readonly secret: string;
  /** The client's greeting, then the server's. */
  readonly greetings: readonly Buffer[];
}

/** Derives the keys of a connection for the side with this `role`. */
function sessionKeys({ plane, secret, greetings }: SessionFacts, role: 'client' | 'server'): SessionKeys {
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
