import type { ClientNamespace } from './client-namespace.js';
import type { ClientCounts } from './client-stats.js';

/** What a client is on this node once it has said hello. */
export interface AttachedClient {
  readonly namespace: ClientNamespace;
  readonly counts: ClientCounts;
  /** Its number among the callers of the store. */
  readonly caller: number;
  /** The body of the answer to HELLO. */
  readonly answer: Buffer;
}
