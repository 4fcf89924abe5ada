import { mkdtempSync, rmSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { crc32, crc32Views } from '../../../src/memory/checksum.js';
import type { LocalRead, PageBytes } from '../../../src/pool/published-pool.js';
import type { PromotableDisk } from '../../../src/store/holding/promoter.js';

/** Pages in a real file, and ways to make reading them slow or fail. */
export class DiskPages implements PromotableDisk {
  readonly #file: FileHandle;
  readonly #pages = new Map<string, { offset: number; length: number; checksum: number }>();
  #endOffset = 0;
  /** Number of reads of each key. */
  readonly reads = new Map<string, number>();
  /** Promise that reads wait for. */
  gate: Promise<void> = Promise.resolve();
  failWith: Error | undefined;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async create(t: ExecutionContext): Promise<DiskPages> {
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-promote-'));
    const file = await open(join(folder, 'pages'), 'w+');
    t.teardown(async () => {
      await file.close();
      rmSync(folder, { recursive: true });
    });
    return new DiskPages(file);
  }

  async write(key: string, bytes: Uint8Array): Promise<void> {
    const offset = this.#endOffset;
    this.#endOffset += bytes.length;
    await this.#file.write(bytes, 0, bytes.length, offset);
    this.#pages.set(key, { offset, length: bytes.length, checksum: crc32(bytes) });
  }

  async damage(key: string): Promise<void> {
    await this.#file.write(new Uint8Array(8).fill(0x5a), 0, 8, this.#pages.get(key)?.offset);
  }

  peekBatch(keys: readonly string[]) {
    return keys.map((key) => this.#pages.get(key) ?? null);
  }

  async readPages(keys: readonly string[], targets: readonly PageBytes[]): Promise<LocalRead[]> {
    for (const key of keys) this.reads.set(key, (this.reads.get(key) ?? 0) + 1);
    const { gate } = this;
    const outcomes = await Promise.all(keys.map((key, i) => this.#read(key, targets[i] as PageBytes)));
    await gate;
    if (this.failWith !== undefined) throw this.failWith;
    return outcomes;
  }

  async #read(key: string, target: PageBytes): Promise<LocalRead> {
    const page = this.#pages.get(key);
    if (page === undefined) return 'absent';
    if (page.length !== target.length) return 'wrong-length';
    const { buffer } = await this.#file.read(new Uint8Array(page.length), 0, page.length, page.offset);
    target.views[0]?.set(buffer);
    if (crc32Views(target.views) === page.checksum) return 'read';
    this.#pages.delete(key);
    return 'damaged';
  }
}

/** A gate that reads wait for until it is opened. */
export function closedGate(): { readonly gate: Promise<void>; readonly open: () => void } {
  let open: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { gate, open };
}
