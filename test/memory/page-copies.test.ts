import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { holdInPlace, staysInPlace } from '../../src/memory/native-memory.js';
import { PageCopies } from '../../src/memory/page-copies.js';
import { content } from '../_support/support.js';

/** Cuts a view into pieces at random. */
function cut(view: Uint8Array, upTo: (limit: number) => number): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < view.length; ) {
    const take = upTo(3) === 0 ? view.length - at : 1 + upTo(view.length - at);
    pieces.push(view.subarray(at, at + take));
    at += take;
  }
  return pieces;
}

for (const how of ['run', 'runOffThread'] as const) {
  test(`page copies: ${how} puts every byte where it belongs, and sums what it has put there`, async (t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const upTo = (limit: number): number => random.u32() % limit;
    const [from, to] = [HostRegion.allocate(1 << 20), HostRegion.allocate(1 << 20)];
    const plain = new Uint8Array(1 << 20);
    t.teardown(() => {
      from.free();
      to.free();
    });
    from.bytes().set(content(seed, from.length));
    plain.set(from.bytes());
    for (let round = 0; round < 40; round++) {
      to.bytes().fill(0xee);
      const expected = new Uint8Array(to.length).fill(0xee);
      const copies = new PageCopies();
      const sums: number[] = [];
      for (let page = 0, at = 0; page < 12; page++) {
        const length = upTo(upTo(4) === 0 ? 80_000 : 3000);
        const offset = upTo(from.length - length);
        const bytes = plain.subarray(offset, offset + length);
        const sources = cut(upTo(4) === 0 ? bytes : from.bytes(offset, length), upTo);
        const isCopied = upTo(4) > 0;
        copies.add(sources, isCopied ? cut(to.bytes(at, length), upTo) : null);
        if (isCopied) expected.set(bytes, at);
        sums.push(crc32(bytes));
        at += length + upTo(3);
      }
      t.deepEqual([...(await copies[how]())], sums, `round ${round}`);
      t.is(Buffer.compare(to.bytes(), expected), 0, `round ${round}`);
    }
  });

  test(`page copies: ${how} copes with a page onto itself, and with none`, async (t) => {
    const region = HostRegion.allocate(10_000);
    t.teardown(() => region.free());
    region.bytes().set(content(1, 10_000));
    const copies = new PageCopies();
    copies.add([region.bytes(0, 5000)], [region.bytes(0, 5000)]);
    copies.add([region.bytes(0, 5000)], [region.bytes(2500, 5000)]);
    t.deepEqual([...(await copies[how]())], [crc32(content(1, 5000)), crc32(content(1, 5000))]);
    t.deepEqual(region.bytes(2500, 5000), content(1, 5000));
    t.deepEqual([...(await new PageCopies()[how]())], []);
    const empty = new PageCopies();
    empty.add([], null);
    t.deepEqual([...(await empty[how]())], [0]);
  });
}

test('page copies: memory that is freed while other threads copy stays until they have ended', async (t) => {
  for (let round = 0; round < 10; round++) {
    const length = 4 << 20;
    const [from, to] = [HostRegion.allocate(length), HostRegion.allocate(length)];
    from.bytes().set(content(round, length));
    const target = to.bytes();
    const copies = new PageCopies();
    copies.add([from.bytes()], [to.bytes()]);
    const done = copies.runOffThread();
    from.free();
    to.free();
    t.deepEqual([...(await done)], [crc32(content(round, length))]);
    t.is(Buffer.compare(target, content(round, length)), 0);
  }
});

test('page copies: targets that are too short are a mistake of ours', (t) => {
  t.throws(() => new PageCopies().add([new Uint8Array(10)], [new Uint8Array(9)]));
});

test('page copies: plain memory stays in place while whoever has made it says so', (t) => {
  const [own, other] = [new Uint8Array(100), new Uint8Array(100)];
  const release = holdInPlace([own.subarray(10, 20), own.subarray(50)]);
  t.deepEqual([staysInPlace(own), staysInPlace(other)], [true, false]);
  release();
  t.false(staysInPlace(own));
  t.true(staysInPlace(new Uint8Array(new SharedArrayBuffer(8))));
});
