import { isOverdue } from '../base/environment/files.js';
import { DISK_FAILURE_SHOWN_MS, DISK_LOG_INTERVAL_MS, DISK_RETRY_AFTER_MS } from '../base/limits.js';
import type { DiskStoreOptions } from './disk-options.js';
import { type DiskFolder, probeFolder } from './folder/disk-folder.js';

/**
 * Whether the disk works. After a failure nothing is written for DISK_RETRY_AFTER_MS. A disk that does not answer has
 * hung: nothing is written until a probe, every DISK_RETRY_AFTER_MS, has succeeded.
 */
export class DiskState {
  readonly #folder: DiskFolder;
  readonly #options: DiskStoreOptions;
  #errors = 0;
  /** Time before which nothing is written, after a failure. */
  #retryAtMs = Number.NEGATIVE_INFINITY;
  #tellAtMs = Number.NEGATIVE_INFINITY;
  /** The last failure; undefined if the disk has worked since. */
  #failure: { readonly atMs: number; readonly message: string } | undefined;
  #isHung = false;
  #isClosed = false;

  constructor(folder: DiskFolder, options: DiskStoreOptions) {
    this.#folder = folder;
    this.#options = options;
  }

  /** Failures so far. */
  get errors(): number {
    return this.#errors;
  }

  /** Whether nothing may be written now. */
  get isPaused(): boolean {
    return this.#isHung || this.#options.env.clock.nowMs() < this.#retryAtMs;
  }

  /** Whether the disk does not answer. */
  get isHung(): boolean {
    return this.#isHung;
  }

  /**
   * The last failure, if the disk still hangs, or if it is recent and the disk has not worked since; otherwise null.
   */
  get failure(): string | null {
    if (this.#failure === undefined) return null;
    const { atMs, message } = this.#failure;
    return this.#isHung || this.#options.env.clock.nowMs() - atMs < DISK_FAILURE_SHOWN_MS ? message : null;
  }

  /** Handles a failed read or write: counts it, logs it at most once in DISK_LOG_INTERVAL_MS, and pauses writing. */
  failed(error: unknown): void {
    const { path } = this.#folder;
    const { env } = this.#options;
    const nowMs = env.clock.nowMs();
    this.#errors++;
    this.#failure = { atMs: nowMs, message: error instanceof Error ? error.message : String(error) };
    env.metrics.count('meshcache_disk_write_errors_total');
    this.#retryAtMs = nowMs + DISK_RETRY_AFTER_MS;
    if (isOverdue(error)) this.#hangs(error);
    if (this.#isHung || nowMs < this.#tellAtMs) return;
    this.#tellAtMs = nowMs + DISK_LOG_INTERVAL_MS;
    env.log.log('error', 'disk tier: reading or writing fails', { path, error: String(error) });
  }

  /** Notes that a page was written. */
  succeeded(): void {
    if (!this.#isHung) this.#failure = undefined;
  }

  /** Stops probing. */
  close(): void {
    this.#isClosed = true;
  }

  #hangs(error: unknown): void {
    if (this.#isHung) return;
    this.#setHung(true);
    const { path } = this.#folder;
    const { env } = this.#options;
    env.log.log('error', 'disk tier: the disk does not answer; reads from it are misses, and pages are not written', {
      path,
      error: String(error),
    });
    this.#probeLater();
  }

  #setHung(isHung: boolean): void {
    this.#isHung = isHung;
    this.#options.onHung?.(isHung);
  }

  #probeLater(): void {
    this.#options.env.clock.after(DISK_RETRY_AFTER_MS, () => void this.#probe());
  }

  async #probe(): Promise<void> {
    if (this.#isClosed) return;
    const { path } = this.#folder;
    const { env } = this.#options;
    try {
      await probeFolder(this.#folder);
    } catch (error) {
      if (isOverdue(error)) {
        this.#probeLater();
        return;
      }
      // The disk answers again, with an error.
      this.#setHung(false);
      this.failed(error);
      return;
    }
    this.#setHung(false);
    this.#failure = undefined;
    env.log.log('warn', 'disk tier: the disk answers again', { path });
  }
}
