import { type RandomSource, seededRandom } from '../../../src/base/environment/random.js';
import type { PlacementRequest } from '../../../src/core/index.js';

/** Pages of a document that has no more than that: ids of different documents differ. */
const PAGES_MAX = 1_000;

/** The first pages of a document, as a request asks for them. */
function pages(document: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => document * PAGES_MAX + i);
}

/** A request each second for the pages that `asked` returns. */
function requests(count: number, asked: (i: number) => number[]): PlacementRequest[] {
  return Array.from({ length: count }, (_, i) => ({ timestampMs: i * 1000, hashIds: asked(i) }));
}

function share(random: RandomSource): number {
  return random.u32() / 2 ** 32;
}

/** Draws numbers below `count`, the low ones more often: number i by 1 / (i + 1)^exponent. */
function zipf(random: RandomSource, count: number, exponent: number): () => number {
  let sum = 0;
  const sums = Float64Array.from({ length: count }, (_, i) => {
    sum += (i + 1) ** -exponent;
    return sum;
  });
  return () => {
    const drawn = share(random) * sum;
    let [low, high] = [0, count - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((sums[middle] as number) > drawn) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}

/** Popular documents of four pages, and now and then a scan of 40 pages that nobody asks for again. */
function zipfWithScans(count: number): PlacementRequest[] {
  const random = seededRandom(1);
  const draw = zipf(random, 4_000, 0.9);
  return requests(count, (i) => (i % 10 === 9 ? pages(10_000 + i, 40) : pages(draw(), 4)));
}

/** Popular documents alone. */
function popular(count: number): PlacementRequest[] {
  const draw = zipf(seededRandom(2), 4_000, 0.8);
  return requests(count, () => pages(draw(), 4));
}

/** 110 documents of ten pages, one after the other, again and again. */
function loop(count: number): PlacementRequest[] {
  return requests(count, (i) => pages(i % 110, 10));
}

/** All of 1,000 documents of four pages are as likely. */
function uniform(count: number): PlacementRequest[] {
  const random = seededRandom(3);
  return requests(count, () => pages(random.u32() % 1_000, 4));
}

/** Documents of four pages out of 300, as likely; the set moves on by one document every eight requests. */
function drift(count: number): PlacementRequest[] {
  const random = seededRandom(4);
  return requests(count, (i) => pages(Math.floor(i / 8) + (random.u32() % 300), 4));
}

/** Another set of 200 documents of four pages every 2,000 requests. */
function phases(count: number): PlacementRequest[] {
  const random = seededRandom(5);
  return requests(count, (i) => pages(Math.floor(i / 2_000) * 1_000 + (random.u32() % 200), 4));
}

/** Popular documents; in one fifth of the time only pages that nobody asks for again. */
function flood(count: number): PlacementRequest[] {
  const draw = zipf(seededRandom(6), 1_000, 0.9);
  const isFlood = (i: number): boolean => i >= 0.4 * count && i < 0.6 * count;
  return requests(count, (i) => (isFlood(i) ? pages(10_000 + i, 8) : pages(draw(), 4)));
}

/** The documents used last are the likeliest ones: their chances fall by the number of others used since. */
function recency(count: number): PlacementRequest[] {
  const random = seededRandom(7);
  const recent: number[] = Array.from({ length: 3_000 }, (_, i) => i);
  return requests(count, () => {
    const depth = Math.min(recent.length - 1, Math.floor(-Math.log(1 - share(random)) * 150));
    const [document = 0] = recent.splice(depth, 1);
    recent.unshift(document);
    return pages(document, 4);
  });
}

/** Each document comes twice, the second time after so many requests. */
function twice(count: number, after: number): PlacementRequest[] {
  return requests(count, (i) => pages(i % 2 === 0 ? i : Math.max(0, i - 2 * after + 1), 4));
}

/** Each document comes five times within a short time, and never again. */
function bursts(count: number): PlacementRequest[] {
  const random = seededRandom(8);
  return requests(count, (i) => pages(Math.floor(i / 5) - (random.u32() % 60) + 60, 4));
}

/** Sessions of 40 requests that grow by three pages each, of 16 users, one as likely as the other. */
function sessions(count: number): PlacementRequest[] {
  const random = seededRandom(9);
  const turns = new Array<number>(16).fill(0);
  return requests(count, () => {
    const user = random.u32() % turns.length;
    const turn = turns[user] as number;
    turns[user] = turn + 1;
    return pages(user + 16 * Math.floor(turn / 40), 10 + 3 * (turn % 40));
  });
}

/** Half the requests go round a loop of 600 pages, half draw from popular documents. */
function loopAndPopular(count: number): PlacementRequest[] {
  const draw = zipf(seededRandom(10), 2_000, 1);
  return requests(count, (i) => (i % 2 === 0 ? pages(10_000 + ((i / 2) % 60), 10) : pages(draw(), 4)));
}

/** Loads of many shapes by name: each makes so many requests, the same ones each time. */
export const LOADS: Readonly<Record<string, (count: number) => PlacementRequest[]>> = {
  'popular with scans': zipfWithScans,
  popular,
  loop,
  uniform,
  drift,
  phases,
  flood,
  recency,
  'twice, soon': (count) => twice(count, 80),
  'twice, late': (count) => twice(count, 300),
  bursts,
  sessions,
  'loop and popular': loopAndPopular,
};
