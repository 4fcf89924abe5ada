/**
 * Tags of the frames of a connection that has keys (`src/net/auth.ts`).
 *
 *     tag   = AES-256-GCM(key, nonce, no text, additional data: the bytes)                    16 bytes
 *     nonce = [number of the frame u64][part of the frame u32]                                big endian
 */
import { type CipherGCM, createCipheriv, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { NativeFrameTagger } from '../native/addon/contract.js';
import { loadNative } from '../native/addon/loader.js';
import type { SessionKeys } from '../net/auth.js';

export const TAG_BYTES = 16;
const NONCE_BYTES = 12;

/** The tags of both directions of a connection. */
export interface SessionTags {
  readonly sent: FrameTags;
  readonly received: FrameTags;
}

/** Creates the tags for the keys of a connection; undefined without keys. */
export function tagsUnder(keys: SessionKeys | undefined): SessionTags | undefined {
  return keys && { sent: new FrameTags(keys.sent), received: new FrameTags(keys.received) };
}

/**
 * Computes the tags of one direction, frame by frame and part by part. The sender writes them; the receiver computes
 * the same ones to compare.
 */
export class FrameTags {
  readonly #tagger: NativeFrameTagger;
  readonly #made = Buffer.alloc(TAG_BYTES);
  /** Number of the next frame. It stays exact, because no connection carries 2^53 frames. */
  #nextFrame = 0;

  constructor(key: KeyObject) {
    this.#tagger = loadNative().addon?.createFrameTagger(key.export()) ?? new CipherTagger(key);
  }

  /** Begins the next frame. Must be called once for each frame, before its tags. */
  begin(): void {
    this.#nextFrame++;
  }

  /**
   * Begins the tag of a part of the current frame; its bytes follow in pieces. A tag that was begun and not ended is
   * discarded. Each part has one tag.
   */
  beginPart(index: number): void {
    this.#tagger.begin(this.#nextFrame - 1, index);
  }

  add(bytes: Uint8Array): void {
    this.#tagger.add(bytes);
  }

  /** Writes the tag of the part into `bytes` from `at` on; nothing can be added to it afterwards. */
  endPart(bytes: Uint8Array, at: number): void {
    this.#tagger.end(bytes, at);
  }

  /** Ends the part, and returns whether `tag` is its tag. Takes the same time whatever the bytes are. */
  endPartAs(tag: Uint8Array): boolean {
    this.#tagger.end(this.#made, 0);
    return timingSafeEqual(this.#made, tag);
  }

  /**
   * Begins the next frame, which consists of one part: all of `bytes` except the last TAG_BYTES, where the tag is
   * written.
   */
  tagFrame(index: number, bytes: Uint8Array): void {
    this.begin();
    this.tagPart(index, bytes);
  }

  /** Tags the part that is all of `bytes` except the last TAG_BYTES, where the tag is written. */
  tagPart(index: number, bytes: Uint8Array): void {
    const tagAt = bytes.length - TAG_BYTES;
    this.beginPart(index);
    this.add(bytes.subarray(0, tagAt));
    this.endPart(bytes, tagAt);
  }

  /** Whether the last TAG_BYTES of `bytes` are the correct tag of the part before them. */
  isTagged(index: number, bytes: Uint8Array): boolean {
    const tagAt = bytes.length - TAG_BYTES;
    this.beginPart(index);
    this.add(bytes.subarray(0, tagAt));
    return this.endPartAs(bytes.subarray(tagAt));
  }
}

/** Replaces the addon's tagger when there is no addon; creates a cipher object for each tag. */
class CipherTagger implements NativeFrameTagger {
  readonly #key: KeyObject;
  readonly #nonce = Buffer.alloc(NONCE_BYTES);
  #cipher: CipherGCM | undefined;

  constructor(key: KeyObject) {
    this.#key = key;
  }

  begin(frame: number, part: number): void {
    this.#nonce.writeUInt32BE(Math.floor(frame / 2 ** 32), 0);
    this.#nonce.writeUInt32BE(frame % 2 ** 32, 4);
    this.#nonce.writeUInt32BE(part, 8);
    this.#cipher = createCipheriv('aes-256-gcm', this.#key, this.#nonce, { authTagLength: TAG_BYTES });
  }

  add(bytes: Uint8Array): void {
    (this.#cipher as CipherGCM).setAAD(bytes);
  }

  end(bytes: Uint8Array, at: number): void {
    const cipher = this.#cipher as CipherGCM;
    cipher.final();
    bytes.set(cipher.getAuthTag(), at);
    this.#cipher = undefined;
  }
}
