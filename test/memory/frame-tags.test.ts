import { createCipheriv, createSecretKey, randomBytes } from 'node:crypto';
import test from 'ava';
import fc from 'fast-check';
import { FrameTags, TAG_BYTES } from '../../src/memory/frame-tags.js';
import type { NativeFrameTagger } from '../../src/native/addon/contract.js';
import { addon, suffix, withAddon } from '../_support/native/addon.js';
import { content } from '../_support/support.js';

const MAX_LENGTH = 20_000;
const KEY = createSecretKey(content(1, 32));
const source = new Uint8Array(new SharedArrayBuffer(MAX_LENGTH));
source.set(content(2, source.length));

/** The tag of PROTOCOL.md, written down a second time, from the document. */
function tagOf(frame: bigint, part: number, bytes: Uint8Array): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64BE(frame, 0);
  nonce.writeUInt32BE(part, 8);
  const cipher = createCipheriv('aes-256-gcm', KEY, nonce, { authTagLength: TAG_BYTES }).setAAD(bytes);
  cipher.update(Buffer.alloc(0));
  cipher.final();
  return cipher.getAuthTag();
}

function newTagger(): NativeFrameTagger {
  return addon.createFrameTagger(KEY.export()) as NativeFrameTagger;
}

withAddon(`frame tags: the addon computes the tags of the protocol, in whatever pieces bytes come${suffix}`, (t) => {
  const tagger = newTagger();
  const lengths = fc.oneof(fc.integer({ min: 0, max: 100 }), fc.integer({ min: 0, max: MAX_LENGTH }));
  const frames = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.maxSafeInteger().map(Math.abs));
  const parts = fc.integer({ min: 0, max: 2 ** 32 - 1 });
  const cuts = fc.array(fc.integer({ min: 0, max: MAX_LENGTH }), { maxLength: 4 });
  const property = fc.property(lengths, frames, parts, cuts, (length, frame, part, cuts) => {
    const made = Buffer.alloc(TAG_BYTES + 2, 0xa5);
    tagger.begin(frame, part);
    const ends = [...cuts.filter((cut) => cut < length).toSorted((a, b) => a - b), length];
    for (const [i, end] of ends.entries()) tagger.add(source.subarray(ends[i - 1] ?? 0, end));
    tagger.end(made, 1);
    const wanted = tagOf(BigInt(frame), part, source.subarray(0, length));
    return made.equals(Buffer.concat([Buffer.from([0xa5]), wanted, Buffer.from([0xa5])]));
  });
  t.notThrows(() => fc.assert(property, { numRuns: 2000 }));
});

withAddon(`frame tags: a part that was begun and not ended leaves nothing in the next one${suffix}`, (t) => {
  const tagger = newTagger();
  const made = Buffer.alloc(TAG_BYTES);
  tagger.begin(4, 1);
  tagger.add(source.subarray(0, 1500));
  tagger.begin(4, 2);
  tagger.add(source.subarray(0, 100));
  tagger.end(made, 0);
  t.deepEqual(made, tagOf(4n, 2, source.subarray(0, 100)));
});

withAddon(`frame tags: the addon refuses keys, numbers and places of another form${suffix}`, (t) => {
  const tagger = newTagger();
  for (const bytes of [0, 16, 31, 33])
    t.throws(() => addon.createFrameTagger(randomBytes(bytes)), { message: /32 bytes/ });
  for (const [frame, part] of [
    [-1, 0],
    [0.5, 0],
    [2 ** 53, 0],
    [0, 2 ** 32],
    [0, -1],
  ] as const) {
    t.throws(() => tagger.begin(frame, part), { instanceOf: TypeError });
  }
  tagger.begin(0, 0);
  for (const [bytes, at] of [
    [15, 0],
    [16, 1],
    [40, 25],
    [40, -1],
  ] as const) {
    t.throws(() => tagger.end(new Uint8Array(bytes), at), { instanceOf: TypeError });
  }
});

test('frame tags: frames are numbered from 0 on, and each part has its tag', (t) => {
  const sent = new FrameTags(KEY);
  const received = new FrameTags(KEY);
  const bytes = source.subarray(0, 300);
  for (const frame of [0n, 1n, 2n]) {
    const tag = Buffer.alloc(TAG_BYTES);
    sent.begin();
    received.begin();
    for (const part of [1, 2, 0]) {
      sent.beginPart(part);
      sent.add(bytes.subarray(0, 7));
      sent.add(bytes.subarray(7));
      sent.endPart(tag, 0);
      t.deepEqual(tag, tagOf(frame, part, bytes));
      t.true(received.isTagged(part, Buffer.concat([bytes, tag])));
    }
    t.false(received.isTagged(3, Buffer.concat([bytes, tag])), 'the tag of another part');
  }
  const framed = Buffer.alloc(bytes.length + TAG_BYTES);
  framed.set(bytes);
  sent.tagFrame(0, framed);
  t.false(received.isTagged(0, framed), 'the tag of another frame');
  received.begin();
  t.true(received.isTagged(0, framed));
  for (let at = 0; at < framed.length; at += 13) {
    framed[at] = (framed[at] as number) ^ 1;
    t.false(received.isTagged(0, framed), `byte ${at}`);
    framed[at] = (framed[at] as number) ^ 1;
  }
});
