import { join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';

const NAME = 'start.json';
const FORMAT = 1;

/**
 * The file of a disk tier that says which start of its node has last known all pages to be good (`FORMAT.md`). It is
 * not synced: a file that is missing, behind or damaged costs pages at the most.
 */
export class StartFile {
  readonly #path: string;
  readonly #env: Environment;
  #start: number;
  /** Resolves when the last write has ended. */
  #written: Promise<void> = Promise.resolve();

  /** Reads the file in the directory `folder`, if there is one. */
  static async open(folder: string, env: Environment): Promise<StartFile> {
    const path = join(folder, NAME);
    return new StartFile(path, await read(path, env), env);
  }

  private constructor(path: string, start: number, env: Environment) {
    this.#path = path;
    this.#start = start;
    this.#env = env;
  }

  /** The start, see `digestOfStart`; 0: not known. */
  get start(): number {
    return this.#start;
  }

  /** Writes another start in the background. */
  note(start: number): void {
    this.#start = start;
    this.#written = this.#written.then(() => this.#write(start));
  }

  /** Resolves when everything noted is written, or failed to be. */
  async close(): Promise<void> {
    await this.#written;
  }

  async #write(start: number): Promise<void> {
    const { files, log } = this.#env;
    const temporary = `${this.#path}.new`;
    try {
      await files.writeFile(temporary, `${JSON.stringify({ format: FORMAT, start })}\n`);
      await files.rename(temporary, this.#path);
    } catch (error) {
      log.log(
        'warn',
        'disk tier: the last start cannot be noted; if this node is away for long, its pages may be lost',
        {
          path: this.#path,
          error: String(error),
        },
      );
    }
  }
}

async function read(path: string, { files }: Environment): Promise<number> {
  try {
    const { format, start } = JSON.parse((await files.readFile(path)).toString()) as Record<string, unknown>;
    return format === FORMAT && Number.isSafeInteger(start) && (start as number) > 0 ? (start as number) : 0;
  } catch {
    return 0;
  }
}
