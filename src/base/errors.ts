/** Stable error codes; programs may switch on them, messages may change. */
export type ErrorCode =
  | 'ERR_CONFIG'
  | 'ERR_ARGUMENT'
  | 'ERR_PROTOCOL'
  | 'ERR_AUTH'
  | 'ERR_CLOSED'
  | 'ERR_TIMEOUT'
  | 'ERR_UNREACHABLE'
  | 'ERR_REMOTE'
  | 'ERR_OVERLOADED'
  | 'ERR_CORE'
  | 'ERR_INVARIANT'
  | 'ERR_DISK'
  | 'ERR_OBJECT_STORE'
  | 'ERR_RDMA';

/** Options of a {@link MeshCacheError} beside its message. */
export interface ErrorOptions {
  readonly cause?: unknown;
  /** True when the same call may succeed later without any change by the caller. */
  readonly retryable?: boolean;
}

/**
 * Base of every error that meshcache throws on purpose. A miss is never an error, it is a result.
 *
 * @example
 * import { ConfigError, MeshCacheError, MeshCacheStore } from 'meshcache';
 *
 * try {
 *   await using store = await MeshCacheStore.create({ discoveryAddr: '10.0.0.1:31990', diskEnabled: true });
 * } catch (error) {
 *   if (error instanceof ConfigError) console.error(error.message); // "diskPath" is required when diskEnabled is true
 *   else if (error instanceof MeshCacheError && error.retryable) console.error(`try again: ${error.code}`);
 *   else throw error;
 * }
 */
export class MeshCacheError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}

/** A configuration value was refused; the message names the key, what was given and what is allowed. */
export class ConfigError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_CONFIG', message, options);
  }
}

/** A caller broke the contract of a method; nothing was touched. */
export class ArgumentError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_ARGUMENT', message, options);
  }
}

/** A peer sent bytes that are not of the protocol; its connection is closed. */
export class ProtocolError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_PROTOCOL', message, options);
  }
}

/**
 * A peer could not prove that it knows the cluster's secret, or a client could not prove that it is a user with the
 * right to do what it asks for.
 */
export class AuthError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_AUTH', message, options);
  }
}

/** The object was closed before or during the call. */
export class ClosedError extends MeshCacheError {
  constructor(what: string, options?: ErrorOptions) {
    super('ERR_CLOSED', `${what} is closed`, options);
  }
}

/** A bug in meshcache: parts of its state disagree, or one part broke the contract of another. */
export class InvariantError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_INVARIANT', message, options);
  }
}

/** The disk tier failed; the path and the system's error are in the message and the cause. */
export class DiskError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_DISK', message, options);
  }
}

/** The object store did not do, or did not confirm, what it was asked to do. */
export class ObjectStoreError extends MeshCacheError {
  constructor(message: string, options?: ErrorOptions) {
    super('ERR_OBJECT_STORE', message, options);
  }
}

/** An RDMA device or library failed. */
export class RdmaError extends MeshCacheError {
  /** Name of the device; empty if no single device failed. */
  readonly device: string;
  /** The call that failed. */
  readonly call: string;
  readonly errno: number;

  constructor(message: string, options: ErrorOptions & { device: string; call: string; errno: number }) {
    super('ERR_RDMA', message, options);
    this.device = options.device;
    this.call = options.call;
    this.errno = options.errno;
  }
}
