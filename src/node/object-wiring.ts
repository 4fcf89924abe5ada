import type { Environment } from '../base/environment/environment.js';
import type { MeshCacheConfig } from '../config.js';
import { reportObjectStore } from '../objects/object-metrics.js';
import { openObjectStore } from '../objects/open-object-store.js';
import type { CopyThreads } from '../pool/copy-threads.js';
import type { ObjectStoreParts } from '../store/page-store.js';

/** Pause before a node asks again whether the others have told it everything. */
const AGAIN_MS = 1_000;

/** The object store of a node; undefined: none is configured. Throws `ConfigError`, also if there is no access key. */
export async function objectStoreOf(
  config: MeshCacheConfig,
  nodeId: string,
  env: Environment,
): Promise<ObjectStoreParts['store'] | undefined> {
  const opened = openObjectStore(config, nodeId, env);
  if (opened === null) return undefined;
  try {
    await opened.credentials.required();
  } catch (error) {
    opened.client.close();
    throw error;
  }
  reportObjectStore(env.metrics);
  return opened.store;
}

/** What the tier of an object store needs beside it. */
export function objectPartsOf(
  store: ObjectStoreParts['store'],
  {
    config,
    copyThreads,
    gate,
  }: { readonly config: MeshCacheConfig; readonly copyThreads: CopyThreads; readonly gate: ToldGate },
): ObjectStoreParts {
  return { store, copyThreads, bytesPerS: config.objectStoreWriteRate, isReadable: () => gate.isOpen };
}

/**
 * Opens when all other nodes have told this one what they know: until then it could not tell a page of the object store from one that was replaced
 * while it was away.
 */
export class ToldGate {
  readonly #waitForDirectory: () => Promise<boolean>;
  readonly #clock: Environment['clock'];
  #isOpen = false;
  #isClosed = false;
  #cancel: () => void = () => {};

  /** `waitForDirectory` resolves with true when all have told it, with false when that took too long. */
  constructor(waitForDirectory: () => Promise<boolean>, { clock }: Pick<Environment, 'clock'>) {
    this.#waitForDirectory = waitForDirectory;
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to wait, when the node has joined. */
  start(): void {
    void this.#waitForDirectory().then((isComplete) => {
      this.#isOpen = isComplete;
      if (!isComplete && !this.#isClosed) this.#cancel = this.#clock.after(AGAIN_MS, () => this.start());
    });
  }

  /** Ends waiting. */
  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }
}
