import type { Environment } from '../../base/environment/environment.js';
import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { DiskStore as DiskStoreOf, type DiskStoreOptions as DiskStoreOptionsOf } from '../../disk/disk-store.js';
import { systemEnvironment } from '../../system/system-environment.js';

/** The options of {@link DiskStore.open}, apart from path and size. */
export interface DiskStoreOptions extends Omit<DiskStoreOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/**
 * Keeps pages in a directory on disk: at most `maxBytes` in total; the least recently used pages are evicted first.
 * After reopening, the pages have the same order of use; after a crash, the pages written last may be missing.
 */
export class DiskStore extends DiskStoreOf {
  /**
   * Opens the store in the directory `path`, which is created if it is missing; `maxBytes` may differ from before.
   * Throws `DiskError` if another process uses the directory, if it cannot be written, or if there is too little space.
   * Contents that are damaged or of another version are set aside.
   */
  static override open(path: string, maxBytes: number, options: DiskStoreOptions): Promise<DiskStore> {
    if (typeof options !== 'object' || options === null) {
      throw new ArgumentError(
        `DiskStore.open: needs a path, bytes and options such as { nodeId: 'node-0' }, got ${shown(options)}`,
      );
    }
    // biome-ignore lint/complexity/noThisInStatic: called by the class's name, `open` would return a store of that class.
    return super.open(path, maxBytes, { ...options, env: options.env ?? systemEnvironment() });
  }
}
