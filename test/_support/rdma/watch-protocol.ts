import type { ServedRegion } from './serving-process.js';

export interface WatchOptions {
  readonly source: ServedRegion;
  /** What the source's bytes follow from. */
  readonly seed: number;
  readonly bindHost: string;
  readonly stallTimeoutMs: number;
  /** So long after a result the buffer is looked at. */
  readonly watchMs: number;
  /** Ends after so many batches that were read; undefined: only when one is not. */
  readonly batches?: number;
  /** Goes on after a failure until a batch is read again. */
  readonly recovers?: boolean;
}

/** `wrong` counts operations that said true and had other bytes than they should. */
export type WatchEvent =
  | { readonly event: 'read'; readonly wrong: number; readonly batches: number; readonly elapsedMs: number }
  | {
      readonly event: 'lost';
      readonly wrong: number;
      readonly batches: number;
      readonly falseOps: number;
      /** That the batch took. */
      readonly elapsedMs: number;
      readonly isUntouched: boolean;
      /** That the host got from the network while the buffer was looked at. */
      readonly lateBytes: number;
    }
  | { readonly event: 'first' | 'recovered'; readonly wrong: number; readonly tries: number };
