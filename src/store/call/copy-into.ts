import { PageCopies } from '../../memory/page-copies.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageBytes } from '../../pool/published-pool.js';
import { indicesWhere } from './indices.js';

/** Copies each source to its target, if it has one; one checksum for each source, null where there is no target. */
export async function copyInto(
  copyThreads: CopyThreads,
  targets: readonly (PageBytes | null)[],
  sources: readonly PageBytes[],
): Promise<(number | null)[]> {
  const copies = new PageCopies();
  const vacant = indicesWhere(targets, (target) => target !== null);
  let bytes = 0;
  for (const i of vacant) {
    const source = sources[i] as PageBytes;
    copies.add(source.views, (targets[i] as PageBytes).views);
    bytes += source.length;
  }
  const isOffThread = copyThreads.take(vacant.length, bytes);
  const sums = isOffThread ? await copyThreads.copy(copies) : copies.run();
  const results = new Array<number | null>(targets.length).fill(null);
  vacant.forEach((i, j) => {
    results[i] = sums[j] as number;
  });
  return results;
}
