import { join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { KEY_PREFIX_BYTES } from '../../base/limits.js';
import type { NamespaceTenants } from '../../pool/tenants/namespace-tenants.js';
import type { IndexEntry } from '../journal/journal.js';

const NAME = 'namespaces.json';
const FORMAT = 1;
const PREFIX = /^[0-9a-f]{32}$/;

/**
 * The file of a disk tier with the namespace tags of its pages, so that quotas hold from the start of a node
 * (`FORMAT.md`). It serves only for quotas: if it is missing, damaged or outdated, pages count as those of tags without
 * a quota until their namespace is used again.
 */
export class NamespaceFile {
  readonly #path: string;
  readonly #tenants: NamespaceTenants;
  readonly #env: Environment;
  /** Resolves when the last write has ended. */
  #written: Promise<void> = Promise.resolve();
  #isWaiting = false;
  #isClosed = false;

  /**
   * Reads the file in the directory `folder`, so that tenants learn the namespaces of `entries`. It is written again
   * when they learn more. Undefined: `tenants` is empty.
   */
  static async open(
    folder: string,
    tenants: NamespaceTenants,
    entries: readonly IndexEntry[],
    env: Environment,
  ): Promise<NamespaceFile | undefined> {
    if (tenants.isEmpty) return undefined;
    const file = new NamespaceFile(join(folder, NAME), tenants, env);
    const wanted = new Set(entries.map(({ key }) => key.slice(0, KEY_PREFIX_BYTES)));
    for (const [prefix, tag] of await file.#read()) if (wanted.has(prefix)) tenants.restore(prefix, tag);
    tenants.learned.listen(() => file.#write());
    return file;
  }

  private constructor(path: string, tenants: NamespaceTenants, env: Environment) {
    this.#path = path;
    this.#tenants = tenants;
    this.#env = env;
  }

  /** Resolves when everything learned so far has been written, or has failed to be. Nothing is written afterwards. */
  async close(): Promise<void> {
    await this.#written;
    this.#isClosed = true;
  }

  async #read(): Promise<[prefix: string, tag: string][]> {
    try {
      const { format, namespaces } = JSON.parse((await this.#env.files.readFile(this.#path)).toString()) as {
        format?: unknown;
        namespaces?: unknown;
      };
      if (format !== FORMAT || typeof namespaces !== 'object') throw new Error(`its format is not ${FORMAT}`);
      return Object.entries(namespaces ?? {}).flatMap(([digest, tag]): [string, string][] =>
        PREFIX.test(digest) && typeof tag === 'string' ? [[`${digest}/`, tag]] : [],
      );
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#failed('cannot be read', error);
      return [];
    }
  }

  /** Writes the file after the write in progress, once for everything that is learned until then. */
  #write(): void {
    if (this.#isWaiting || this.#isClosed) return;
    this.#isWaiting = true;
    this.#written = this.#written.then(async () => {
      this.#isWaiting = false;
      const { files } = this.#env;
      const namespaces = Object.fromEntries(
        [...this.#tenants.known()].map(([prefix, tag]) => [prefix.slice(0, -1), tag]),
      );
      const temporary = `${this.#path}.new`;
      try {
        await files.writeFile(temporary, `${JSON.stringify({ format: FORMAT, namespaces })}\n`);
        await files.rename(temporary, this.#path);
      } catch (error) {
        this.#failed('cannot be written', error);
      }
    });
  }

  #failed(what: string, error: unknown): void {
    this.#env.log.log(
      'warn',
      `disk tier: the file of namespaces ${what}; quotas count its pages once their namespace is used`,
      {
        path: this.#path,
        error: String(error),
      },
    );
  }
}
