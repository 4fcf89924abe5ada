import type { ClusterSecrets } from '../base/environment/credentials.js';
import { ArgumentError, ConfigError, MeshCacheError } from '../base/errors.js';
import { meantName, nearestName, toCamelCase, toSnakeCase } from '../base/names.js';
import { shown } from '../base/shown.js';
import { CONFIG_KEYS, type MeshCacheConfigFields, type StorageConfig, spellingOf } from '../config.js';

/** A number of bytes, or text such as `'4gb'`, `'1.5gb'` or `'512mb'` (binary units). */
export type ByteSize = number | `${number}${'b' | 'kb' | 'mb' | 'gb' | 'tb'}`;

/** Settings that are numbers of bytes. */
export type SizeSetting =
  | 'globalSegmentSize'
  | 'diskSize'
  | 'diskIndexSize'
  | 'clusterMap'
  | 'clientRegionsMax'
  | 'objectStoreWriteRate';

/** The type of a setting in a program. */
type SettingValue<K extends keyof MeshCacheConfigFields> = K extends SizeSetting
  ? ByteSize
  : K extends 'clusterSecret'
    ? string | readonly string[] | ClusterSecrets
    : MeshCacheConfigFields[K];

/** The settings of a node that have a default: all but the discovery address. */
export type OptionalSettings = {
  readonly [K in Exclude<keyof MeshCacheConfigFields, 'discoveryAddr'>]?: SettingValue<K> | undefined;
};

/** The options of `MeshCacheStore.create`: the settings of a node, and the part of a model whose pages it caches. */
export interface MeshCacheStoreOptions extends OptionalSettings {
  /** `host:port` of a discovery master, or several, comma-separated. */
  readonly discoveryAddr: string;
  /** Stores share pages only if they have the same model name, or none. */
  readonly modelName?: string | undefined;
  /** Tensor-parallel rank of this process. Default: 0. */
  readonly tpRank?: number | undefined;
  /** Tensor-parallel size. Default: 1. */
  readonly tpSize?: number | undefined;
  /** Pipeline-parallel rank of this process. Default: 0. */
  readonly ppRank?: number | undefined;
  /** Pipeline-parallel size. Default: 1. */
  readonly ppSize?: number | undefined;
  /** All tensor-parallel ranks of an MLA model hold the same pages, so they share entries. Default: false. */
  readonly isMlaModel?: boolean | undefined;
}

const MODEL_OPTIONS = ['modelName', 'tpRank', 'tpSize', 'ppRank', 'ppSize', 'isMlaModel'] as const;
const STORAGE_KEYS: ReadonlySet<string> = new Set([...MODEL_OPTIONS, 'extraConfig']);
const OPTION_NAMES: readonly string[] = [...CONFIG_KEYS.map(toCamelCase), ...MODEL_OPTIONS];

/** Matches keys of several words, except as parts of paths. */
const KEYS_IN_TEXT = new RegExp(
  `(?<![\\w/.-])(?:${CONFIG_KEYS.filter((key) => key.includes('_')).join('|')})(?![\\w/-])`,
  'g',
);

/** Starts a node; error messages name settings as the caller has spelled them. */
export async function namedAsGiven<T>(storage: StorageConfig, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof MeshCacheError)) throw error;
    const given = error.message;
    const message = given.replace(KEYS_IN_TEXT, spellingOf(storage.extraConfig ?? {}));
    error.message = message;
    error.stack = error.stack?.replace(given, () => message);
    throw error;
  }
}

/**
 * Converts options of either form to the configuration of a host framework. Throws `ConfigError` for options that are
 * unknown, written in snake_case, or given beside `extraConfig`.
 */
export function storageConfigOf(given: MeshCacheStoreOptions | StorageConfig): StorageConfig {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new ArgumentError(`create: needs options, such as { discoveryAddr: '10.0.0.1:31990' }, got ${shown(given)}`);
  }
  if ('extraConfig' in given) return checkedStorage(given);
  const names = Object.keys(given);
  for (const name of names) checkOption(name);
  const { modelName, tpRank = 0, tpSize = 1, ppRank = 0, ppSize = 1, isMlaModel = false, ...settings } = given;
  if (settings.discoveryAddr === undefined) {
    throw new ConfigError(`create: option "discoveryAddr" is required, for example "10.0.0.1:31990"`);
  }
  for (const name of ['diskPath', 'diskWrite'] as const) {
    if (settings[name] === undefined || settings.diskEnabled !== undefined) continue;
    throw new ConfigError(
      `create: option "${name}" has no effect without a disk tier; add diskEnabled: true, or leave it out`,
    );
  }
  const storage = { tpRank, tpSize, ppRank, ppSize, isMlaModel, extraConfig: settings };
  return modelName === undefined ? storage : { ...storage, modelName };
}

/** Refuses settings beside `extraConfig`, because they would have no effect. */
function checkedStorage(storage: StorageConfig): StorageConfig {
  const setting = Object.keys(storage).find(
    (name) => !STORAGE_KEYS.has(name) && OPTION_NAMES.includes(toCamelCase(name)),
  );
  if (setting === undefined) return storage;
  throw new ConfigError(
    `create: option "${setting}" is given beside extraConfig; write it in there, or leave extraConfig out`,
  );
}

function checkOption(name: string): void {
  if (OPTION_NAMES.includes(name)) return;
  const written = toCamelCase(name);
  if (name === 'extra_config') throw new ConfigError('create: option "extra_config" is written "extraConfig"');
  if (OPTION_NAMES.includes(written)) {
    const inMapping = CONFIG_KEYS.includes(name)
      ? `, or give { extraConfig: { ${name}: … } } as host frameworks do`
      : '';
    throw new ConfigError(`create: option "${name}" is written "${written}" here${inMapping}`);
  }
  const near = nearestName(toSnakeCase(name), OPTION_NAMES.map(toSnakeCase));
  const meant = meantName(near === undefined ? undefined : toCamelCase(near));
  throw new ConfigError(`create: unknown option "${name}"${meant || '; docs/configuration.md has all of them'}`);
}
