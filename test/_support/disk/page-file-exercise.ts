import { silentLogger } from '../../../src/base/environment/log.js';
import { seededRandom } from '../../../src/base/environment/random.js';
import { PageFile } from '../../../src/disk/folder/page-file.js';
import { crc32Views } from '../../../src/memory/checksum.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import type { PageBytes } from '../../../src/pool/page-batch.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { content } from '../support.js';

const BLOCK = 4096;
const MIB = 2 ** 20;
const SLOT_BYTES = 12 * MIB;
const SLOTS = 4;

export interface ExerciseResult {
  readonly mode: string;
  readonly pages: number;
  readonly failures: readonly string[];
}

/**
 * Writes pages of all kinds to their slots, several at once, and reads them back into memory of all kinds: aligned and
 * not, in one view and in many, of a region and of the program. The bytes around a page, in memory and in the file,
 * must not change.
 */
export async function exercisePageFile(
  path: string,
  mode: 'auto' | 'direct' | 'buffered',
  seed: number,
): Promise<ExerciseResult> {
  const random = seededRandom(seed);
  const upTo = (limit: number): number => random.u32() % limit;
  const file = await PageFile.open(path, {
    capacityBytes: SLOT_BYTES * SLOTS,
    mode,
    env: systemEnvironment({ log: silentLogger }),
  });
  const failures: string[] = [];
  let pages = 0;
  const regions = Array.from({ length: SLOTS }, () => HostRegion.allocate(SLOT_BYTES + 2 * BLOCK));
  const source = content(seed, SLOT_BYTES + MIB);

  const lengthOf = (): number =>
    [
      1 + upTo(3 * BLOCK),
      BLOCK * (1 + upTo(40)),
      MIB,
      MIB + 1 + upTo(BLOCK),
      4 * MIB,
      9 * MIB,
      4 * MIB + upTo(6 * MIB),
    ][upTo(7)] as number;
  /** Memory of `length` bytes; the region around it is filled with 0xee. */
  const memory = (slot: number, length: number): PageBytes & { readonly isUntouchedAround: () => boolean } => {
    const region = regions[slot] as HostRegion;
    const isRegion = upTo(3) > 0;
    const at = isRegion && upTo(2) > 0 ? upTo(2) * BLOCK : upTo(BLOCK);
    const whole = isRegion ? region.bytes() : new Uint8Array(region.length);
    whole.fill(0xee);
    const bytes = whole.subarray(at, at + length);
    return {
      views: upTo(3) > 0 ? [bytes] : cut(bytes, upTo),
      length,
      isUntouchedAround: () => isAll(whole.subarray(0, at), 0xee) && isAll(whole.subarray(at + length), 0xee),
    };
  };
  const slotRound = async (slot: number, round: number): Promise<void> => {
    const length = lengthOf();
    const offset = slot * SLOT_BYTES + BLOCK * upTo(4);
    const from = upTo(MIB);
    const expected = source.subarray(from, from + length);
    const written = memory(slot, length);
    spread(expected, written.views);
    const say = (text: string): unknown => failures.push(`round ${round}, slot ${slot}, ${length} bytes: ${text}`);
    await file.write(offset, written);
    const target = memory(slot, length);
    const checksum = await file.read(offset, target);
    const got = Buffer.concat(target.views);
    if (Buffer.compare(got, expected) !== 0) say('other bytes');
    if (checksum !== crc32Views([expected])) say('another checksum');
    if (!target.isUntouchedAround()) say('bytes beside the targets were written');
    pages++;
  };
  try {
    for (let round = 0; round < 12; round++) {
      await Promise.all(Array.from({ length: SLOTS }, (_, slot) => slotRound(slot, round)));
    }
    return { mode: file.mode, pages, failures };
  } finally {
    await file.close();
    for (const region of regions) region.free();
  }
}

/** Cuts bytes into random views, of which some may be empty. */
function cut(bytes: Uint8Array, upTo: (limit: number) => number): Uint8Array[] {
  const views: Uint8Array[] = [];
  const step = Math.max(1, Math.ceil(bytes.length / (1 + upTo(1500))));
  for (let at = 0; at < bytes.length; ) {
    const take = Math.min(bytes.length - at, upTo(2 * step));
    views.push(bytes.subarray(at, at + take));
    at += take;
  }
  return views;
}

function spread(bytes: Uint8Array, views: readonly Uint8Array[]): void {
  let at = 0;
  for (const view of views) {
    view.set(bytes.subarray(at, at + view.length));
    at += view.length;
  }
}

function isAll(bytes: Uint8Array, value: number): boolean {
  return Buffer.compare(bytes, Buffer.alloc(bytes.length, value)) === 0;
}
