/**
 * Keys and tags of one connection whose sides have proved that they know the cluster's secret. Every frame that follows carries tags, so
 * that a program between the two sides can pass frames on and cannot make, change, repeat, drop or reorder any.
 *
 *     key   = HKDF-SHA-256(secret, salt: SHA-256(client's greeting | server's greeting), info: "meshcache keys 1 <plane> <sender>")
 *     tag   = AES-256-GCM(key, nonce, no text, additional data: the bytes)                    16 bytes
 *     nonce = [number of the frame u64][part of the frame u32]                                big endian
 */
import { createCipheriv, createHash, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto';

export const TAG_BYTES = 16;
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const NO_BYTES = Buffer.alloc(0);

/** The tags of both directions of a connection. */
export interface SessionTags {
  readonly sent: FrameTags;
  readonly received: FrameTags;
}

/** What the keys of a connection are derived from; both sides have the same. */
export interface SessionFacts {
  readonly plane: string;
  /** The secret that both sides have proved to know. */
  readonly secret: string;
  /** The client's, then the server's. */
  readonly greetings: readonly Buffer[];
}

/** Derives the tags of a connection for the side that is its `role`. */
export function sessionTags(facts: SessionFacts, role: 'client' | 'server'): SessionTags {
  const client = new FrameTags(keyOf(facts, 'client'));
  const server = new FrameTags(keyOf(facts, 'server'));
  return role === 'client' ? { sent: client, received: server } : { sent: server, received: client };
}

/** The tags of one direction, frame by frame: the sender makes them, and the receiver makes the same ones to compare. */
export class FrameTags {
  readonly #key: KeyObject;
  readonly #nonce = Buffer.alloc(NONCE_BYTES);
  /** Number of the next frame. It stays exact: 2^53 frames do not pass through one connection. */
  #frame = 0;

  constructor(key: KeyObject) {
    this.#key = key;
  }

  /** Begins the next frame. To be called once for each, before its tags. */
  begin(): void {
    this.#nonce.writeUInt32BE(Math.floor(this.#frame / 2 ** 32), 0);
    this.#nonce.writeUInt32BE(this.#frame % 2 ** 32, 4);
    this.#frame++;
  }

  /** Starts the tag of a part of the present frame, for bytes that come in pieces. Each part has one tag. */
  part(index: number): PartTag {
    this.#nonce.writeUInt32BE(index, 8);
    return new PartTag(this.#key, this.#nonce);
  }

  /** The tag of a part whose bytes are at hand. */
  tagOf(index: number, bytes: Uint8Array): Buffer {
    return this.part(index).add(bytes).end();
  }

  /** Begins the next frame, of one part, and returns it with its tag behind it. */
  framed(index: number, bytes: Buffer): Buffer {
    this.begin();
    return Buffer.concat([bytes, this.tagOf(index, bytes)]);
  }

  /** Whether `tag` is that of a part. Takes the same time whatever the bytes are. */
  isTagOf(tag: Uint8Array, index: number, bytes: Uint8Array): boolean {
    return timingSafeEqual(this.tagOf(index, bytes), tag);
  }
}

/** The tag of bytes that come in pieces. */
export class PartTag {
  readonly #cipher: ReturnType<typeof gcm>;

  constructor(key: KeyObject, nonce: Buffer) {
    this.#cipher = gcm(key, nonce);
  }

  add(bytes: Uint8Array): this {
    this.#cipher.setAAD(bytes);
    return this;
  }

  /** The tag; nothing can be added afterwards. */
  end(): Buffer {
    this.#cipher.update(NO_BYTES);
    this.#cipher.final();
    return this.#cipher.getAuthTag();
  }
}

function gcm(key: KeyObject, nonce: Buffer) {
  return createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
}

function keyOf({ plane, secret, greetings }: SessionFacts, sender: 'client' | 'server'): KeyObject {
  const salt = createHash('sha256');
  for (const greeting of greetings) salt.update(greeting);
  const info = `meshcache keys 1 ${plane} ${sender}`;
  return createSecretKey(Buffer.from(hkdfSync('sha256', secret, salt.digest(), info, KEY_BYTES)));
}
