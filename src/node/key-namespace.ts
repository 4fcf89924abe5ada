import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';
import { MeshCacheConfig, type StorageConfig, toBoolean, toNumber } from '../config.js';
import { KeyEncoder } from '../core/index.js';

/** Which part of a model a store is for: that of a {@link StorageConfig}, with text made into numbers. */
export interface ModelPart {
  readonly tpRank: number;
  readonly tpSize: number;
  readonly ppRank: number;
  readonly ppSize: number;
  readonly isMlaModel: boolean;
}

const SIZE_MAX_COUNT = 0xffffffff;

/** Throws `ArgumentError` for ranks that cannot be, and for what is no boolean. */
export function modelPartOf(storage: StorageConfig): ModelPart {
  if (typeof storage !== 'object' || storage === null) {
    throw new ArgumentError(`create: needs a storage configuration, got ${shown(storage)}`);
  }
  const isMlaModel = toBoolean(storage.isMlaModel ?? false);
  if (isMlaModel === undefined) {
    throw new ArgumentError(`create: isMlaModel must be true or false, got ${shown(storage.isMlaModel)}`);
  }
  const [tpRank, tpSize] = rankOf('tp', storage.tpRank, storage.tpSize);
  const [ppRank, ppSize] = rankOf('pp', storage.ppRank, storage.ppSize);
  return { tpRank, tpSize, ppRank, ppSize, isMlaModel };
}

/**
 * What makes the keys of a store that is created with the same configuration, as they are in the directory. Throws `ConfigError`
 * and `ArgumentError`, as creating that store does.
 */
export function keyEncoderFor(storage: StorageConfig): KeyEncoder {
  return encoderOf(storage, modelPartOf(storage), MeshCacheConfig.fromExtraConfig(storage.extraConfig ?? {}));
}

/** {@link keyEncoderFor} with what has been parsed already. */
export function encoderOf({ modelName }: StorageConfig, part: ModelPart, config: MeshCacheConfig): KeyEncoder {
  const { dtype, layout, namespace: tag } = config;
  return new KeyEncoder({ modelName: modelName ?? undefined, dtype, layout, tag, ...part });
}

function rankOf(name: string, rank: unknown, size: unknown): [rank: number, size: number] {
  const [at, of] = [toNumber(rank), toNumber(size)];
  const isSize = Number.isSafeInteger(of) && of >= 1 && of <= SIZE_MAX_COUNT;
  if (isSize && Number.isSafeInteger(at) && at >= 0 && at < of) return [at, of];
  throw new ArgumentError(
    `create: ${name}Rank ${shown(rank)} of ${name}Size ${shown(size)}; allowed are a size of at least 1 and a rank of 0 to size - 1`,
  );
}
