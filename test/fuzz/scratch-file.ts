import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder that is made when it is first asked for. */
export class Scratch {
  #folder: string | undefined;

  get folder(): string {
    this.#folder ??= mkdtempSync(join(tmpdir(), 'meshcache-fuzz-'));
    return this.#folder;
  }

  /** The path of a file with these bytes. */
  write(name: string, bytes: Uint8Array): string {
    const path = join(this.folder, name);
    writeFileSync(path, bytes);
    return path;
  }

  remove(): void {
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
    this.#folder = undefined;
  }
}
