import { ArgumentError } from '../base/errors.js';
import { toBoolean, toNumber } from '../base/settings/fields.js';
import { shown } from '../base/shown.js';
import { MeshCacheConfig, type StorageConfig } from '../config.js';
import { KeyEncoder, type KeyNamespace } from '../core/index.js';
import { type MeshCacheStoreOptions, storageConfigOf } from './store-options.js';

/** The part of a model that a store serves: the ranks of a {@link StorageConfig}, as numbers. */
export interface ModelPart {
  readonly tpRank: number;
  readonly tpSize: number;
  readonly ppRank: number;
  readonly ppSize: number;
  readonly isMlaModel: boolean;
}

const SIZE_MAX_COUNT = 0xffffffff;

/**
 * Reads the part of a model. Throws `ArgumentError` for invalid ranks, and for an `isMlaModel` that is not a boolean.
 */
export function modelPartOf(storage: StorageConfig): ModelPart {
  const isMlaModel = toBoolean(storage.isMlaModel ?? false);
  if (isMlaModel === undefined) {
    throw new ArgumentError(`create: isMlaModel must be true or false, got ${shown(storage.isMlaModel)}`);
  }
  const [tpRank, tpSize] = rankOf('tp', storage.tpRank, storage.tpSize);
  const [ppRank, ppSize] = rankOf('pp', storage.ppRank, storage.ppSize);
  return { tpRank, tpSize, ppRank, ppSize, isMlaModel };
}

/**
 * The encoder of a store that is created with this configuration: it turns the program's keys into the keys of the
 * directory. Throws `ConfigError` and `ArgumentError`, as creating that store does.
 */
export function keyEncoderFor(given: MeshCacheStoreOptions | StorageConfig): KeyEncoder {
  const storage = storageConfigOf(given);
  return encoderOf(storage, modelPartOf(storage), MeshCacheConfig.fromExtraConfig(storage.extraConfig ?? {}));
}

/** Like {@link keyEncoderFor}, from a parsed configuration. */
export function encoderOf(storage: StorageConfig, part: ModelPart, config: MeshCacheConfig): KeyEncoder {
  return new KeyEncoder(namespaceOf(storage, part, config));
}

/** The namespace of a store that is created with this configuration. */
export function namespaceOf({ modelName }: StorageConfig, part: ModelPart, config: MeshCacheConfig): KeyNamespace {
  const { dtype, layout, namespace: tag, fingerprint } = config;
  return { modelName: modelName ?? undefined, dtype, layout, tag, fingerprint, ...part };
}

function rankOf(name: string, rank: unknown, size: unknown): [rank: number, size: number] {
  const [at, of] = [toNumber(rank), toNumber(size)];
  const isSize = Number.isSafeInteger(of) && of >= 1 && of <= SIZE_MAX_COUNT;
  if (isSize && Number.isSafeInteger(at) && at >= 0 && at < of) return [at, of];
  throw new ArgumentError(
    `create: ${name}Rank ${shown(rank)} of ${name}Size ${shown(size)}; allowed are a size of at least 1 and a rank of 0 to size - 1`,
  );
}
