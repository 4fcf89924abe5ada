import { mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { formatSize } from '../../base/sizes.js';
import { CommandFailure } from '../../command/failure.js';
import type { DiskSizes } from '../../disk/disk-store.js';

/** Folders for the disk tiers of a cluster's nodes, for the time of one run. */
export class NodeFolders {
  /** Holds the folders of all nodes. */
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /**
   * Creates a folder below `parent` (default: the system's folder for temporary files), which is created if missing.
   * Throws {@link CommandFailure} if it cannot be written or has no room for `totalBytes`.
   */
  static async create(parent: string | undefined, totalBytes: number): Promise<NodeFolders> {
    const path = parent ?? tmpdir();
    let folder: string;
    try {
      await mkdir(path, { recursive: true });
      folder = await mkdtemp(join(path, 'meshcache-'));
    } catch (cause) {
      throw new CommandFailure(
        `cannot make folders for the disks below ${path}: ${(cause as Error).message}`,
        undefined,
        {
          cause,
        },
      );
    }
    const folders = new NodeFolders(folder);
    const { bavail, bsize } = await statfs(folder);
    if (bavail * bsize >= totalBytes) return folders;
    await folders.remove();
    throw new CommandFailure(
      `the disks will take ${formatSize(totalBytes)} and ${formatSize(bavail * bsize)} are free below ${path}: ` +
        'choose another folder (--disk-path), smaller pages or smaller disks',
    );
  }

  /** Configuration keys of node `index`, counted from 0, with a disk of that size. */
  config(index: number, { maxBytes, indexBytes }: DiskSizes): Record<string, unknown> {
    const path = join(this.path, `node-${index}`);
    const indexSize = indexBytes === undefined ? {} : { disk_index_size: indexBytes };
    return { disk_enabled: true, disk_path: path, disk_size: maxBytes, ...indexSize };
  }

  /** Removes all folders with their content. The nodes must have ended. */
  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}
