import type { AuditAction } from '../../base/environment/audit.js';
import type { ClientAccess } from './client-access.js';
import type { ClientNamespace } from './client-namespace.js';
import type { ClientCounts } from './client-stats.js';

/** The node's view of a client that has said hello. */
export interface AttachedClient {
  readonly namespace: ClientNamespace;
  readonly access: ClientAccess;
  readonly counts: ClientCounts;
  /** The client's number among the callers of the store. */
  readonly caller: number;
  /** Does work and records it in the audit log. */
  readonly audited: <T>(action: AuditAction, work: () => Promise<T>) => Promise<T>;
  /** Body of the answer to HELLO. */
  readonly answer: Buffer;
}
