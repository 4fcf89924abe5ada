import type { ServedRegion } from './serving-process.js';

/** Bytes of each read operation, but the last of a batch may have fewer. */
export const OP_BYTES = 16 * 1024;

export interface WatchOptions {
  readonly source: ServedRegion;
  /** Seed of the source's bytes. */
  readonly seed: number;
  readonly bindHost: string;
  readonly stallTimeoutMs: number;
  readonly dscp?: number;
  /** Milliseconds for which the buffer is watched after a result. */
  readonly watchMs: number;
  /** Number of read batches after which it ends; undefined: it ends with the first failure. */
  readonly batches?: number;
  /** Whether to continue after a failure until a batch is read again. */
  readonly recovers?: boolean;
}

/** `wrong` counts operations that returned true with wrong bytes. */
export type WatchEvent =
  | { readonly event: 'read'; readonly wrong: number; readonly batches: number; readonly elapsedMs: number }
  | {
      readonly event: 'lost';
      readonly wrong: number;
      readonly batches: number;
      readonly falseOps: number;
      /** Milliseconds that the batch took. */
      readonly elapsedMs: number;
      readonly isUntouched: boolean;
      /** Bytes that the host received from the network while the buffer was watched. */
      readonly lateBytes: number;
    }
  | { readonly event: 'first' | 'recovered'; readonly wrong: number; readonly tries: number };
