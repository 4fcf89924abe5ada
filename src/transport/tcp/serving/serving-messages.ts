import type { AuditEvent } from '../../../base/audit/audit.js';
import type { LogFields, LogLevel } from '../../../base/environment/log.js';
import type { Labels } from '../../../base/environment/metrics-sink.js';
import type { TlsTexts } from '../../../base/environment/tls-identity.js';
import type { TcpLimits } from '../protocol/limits.js';
import type { Registration } from './registrations.js';

/** Start data of the serving thread, which then receives {@link ToServing} and sends {@link FromServing}. */
export interface ServingSetup {
  readonly counterMemory: SharedArrayBuffer;
  readonly host: string;
  readonly port: number;
  readonly limits: TcpLimits;
  /** Secrets as texts, because a class instance cannot be posted to a thread. */
  readonly secrets?: readonly string[] | undefined;
  /** Certificate and key; with them the thread speaks TLS. */
  readonly tls?: TlsTexts | undefined;
}

export type ToServing =
  | { readonly type: 'register'; readonly registration: Registration }
  | { readonly type: 'deregister'; readonly rkey: number }
  | ({ readonly type: 'credentials' } & Pick<ServingSetup, 'secrets' | 'tls'>)
  | { readonly type: 'close' };

export type FromServing =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'refused'; readonly message: string }
  | { readonly type: 'deregistered'; readonly rkey: number }
  | ServingReport;

/**
 * Log records, counts and events for the audit log of the serving thread, for the logger, the metrics and the audit log
 * of the transport.
 */
export type ServingReport =
  | {
      readonly type: 'log';
      readonly level: LogLevel;
      readonly message: string;
      readonly fields?: LogFields | undefined;
    }
  | { readonly type: 'audit'; readonly event: AuditEvent; readonly count: number }
  | { readonly type: 'count'; readonly name: string; readonly amount: number; readonly labels: Labels };
