import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { crc32 } from '../../src/memory/checksum.js';
import {
  imageBytes,
  imageChecksum,
  readStamp,
  readTail,
  STAMP_BYTES,
  writeStamp,
  writeTail,
} from '../../src/memory/page-stamp.js';

test('page stamp: an image has the checksum that is worked out, and with its tail it is the page', (t) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  for (const length of [
    1,
    2,
    5,
    6,
    7,
    11,
    12,
    100,
    4096,
    ...Array.from({ length: 200 }, () => 1 + (random.u32() % 300)),
  ]) {
    const page = random.bytes(length);
    const stamp = readStamp(random.bytes(STAMP_BYTES), 0);
    const image = new Uint8Array(imageBytes(length));
    image.set(page);
    const tail = readTail([page], length);
    writeStamp(image, image.length - STAMP_BYTES, stamp);
    t.is(readStamp(image, image.length - STAMP_BYTES), stamp);
    t.is(imageChecksum({ length, checksum: crc32(page), stamp, tail }), crc32(image), `${length} bytes`);
    const cut = random.u32() % (length + 1);
    const pieces = [
      image.slice(0, Math.min(cut, length)),
      image.slice(Math.min(cut, length), length),
      new Uint8Array(0),
    ];
    writeTail(pieces, length, tail);
    t.deepEqual(new Uint8Array(Buffer.concat(pieces)), page, `${length} bytes, cut at ${cut}`);
    t.is(readTail(pieces, length), tail);
  }
});
