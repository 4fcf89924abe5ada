import {
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { seededRandom } from '../../../src/base/environment/random.js';

/** The file to damage, and the source of random choices. */
export interface Place {
  readonly path: string;
  /** The same file of another store. */
  readonly otherPath: string;
  readonly random: (below: number) => number;
}

/** Damages a file, and returns a description. */
type Damage = (place: Place) => string;

const BLOCK_BYTES = 4096;

export const DAMAGES: Readonly<Record<string, Damage>> = {
  cut({ path, random }) {
    const { length } = readFileSync(path);
    const left = random(4) === 0 ? 0 : random(length);
    truncateSync(path, left);
    return `cut to ${left} of ${length} bytes`;
  },
  zeros({ path, random }) {
    const { length } = readFileSync(path);
    const blocks = new Set(Array.from({ length: 1 + random(4) }, () => random(Math.ceil(length / BLOCK_BYTES))));
    overwrite(
      path,
      [...blocks].map((block) => {
        const at = block * BLOCK_BYTES;
        return { at, bytes: Buffer.alloc(Math.min(BLOCK_BYTES, length - at)) };
      }),
    );
    return `zeros in blocks ${[...blocks].join(', ')}`;
  },
  bits({ path, random }) {
    const bytes = readFileSync(path);
    const bits = Array.from({ length: 1 + random(64) }, () => random(bytes.length * 8));
    for (const bit of bits) bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
    overwrite(
      path,
      bits.map((bit) => ({ at: bit >> 3, bytes: bytes.subarray(bit >> 3, (bit >> 3) + 1) })),
    );
    return `flipped bits ${bits.join(', ')}`;
  },
  deleted({ path }) {
    rmSync(path);
    return 'deleted';
  },
  folder({ path }) {
    rmSync(path);
    mkdirSync(path);
    writeFileSync(join(path, 'file'), 'of somebody');
    return 'replaced by a folder';
  },
  noise({ path, random }) {
    const { length } = readFileSync(path);
    const newLength = random(2) === 0 ? length : random(2 * length);
    writeFileSync(path, seededRandom(random(2 ** 32)).bytes(newLength));
    return `replaced by ${newLength} random bytes`;
  },
  longer({ path, random }) {
    const length = 1 + random(100_000);
    writeFileSync(path, seededRandom(random(2 ** 32)).bytes(length), { flag: 'a' });
    return `${length} random bytes at the end`;
  },
  swapped({ path, otherPath }) {
    copyFileSync(otherPath, path);
    return "replaced by another store's";
  },
};

function overwrite(path: string, parts: readonly { readonly at: number; readonly bytes: Uint8Array }[]): void {
  const fd = openSync(path, 'r+');
  for (const { at, bytes } of parts) writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
}
