import type { Environment } from '../../base/environment/environment.js';
import { DiskStore as DiskStoreOf, type DiskStoreOptions as DiskStoreOptionsOf } from '../../disk/disk-store.js';
import { systemEnvironment } from '../../system/system-environment.js';

/** What {@link DiskStore.open} takes beside path and size. */
export interface DiskStoreOptions extends Omit<DiskStoreOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/**
 * Pages in a directory of the disk: at most `maxBytes` there, everything included, the least recently used ones go first. What is
 * in it is found again when it is opened anew, in the same order of use; after a crash what was written a moment before may be missing.
 */
export class DiskStore extends DiskStoreOf {
  /**
   * Opens the store in the directory `path`, which is made when it is missing; `maxBytes` may differ from before. Throws `DiskError`: another
   * process uses it, it cannot be written, there is too little space. What is damaged or of another version is set aside.
   */
  static override open(path: string, maxBytes: number, options: DiskStoreOptions): Promise<DiskStore> {
    // biome-ignore lint/complexity/noThisInStatic: by the class's name it would make a store of that class.
    return super.open(path, maxBytes, { ...options, env: options.env ?? systemEnvironment() });
  }
}
