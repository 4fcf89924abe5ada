import type { Environment } from '../base/environment/environment.js';
import type { MeshCacheConfig } from '../config.js';
import { openObjectStore, reportObjectStore } from '../objects/object-store.js';
import type { CopyThreads } from '../pool/copy-threads.js';
import type { ObjectStoreParts } from '../store/page-store.js';
import type { Settling } from './warm/settling.js';

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
    settling,
  }: { readonly config: MeshCacheConfig; readonly copyThreads: CopyThreads; readonly settling: Settling },
): ObjectStoreParts {
  return { store, copyThreads, bytesPerS: config.objectStoreWriteRate, isReadable: () => settling.hasHeard };
}
