import type { AuditEvent } from '../../../base/environment/audit.js';
import type { TlsTexts } from '../../../base/environment/credentials.js';
import type { Environment } from '../../../base/environment/environment.js';
import type { LogFields, LogLevel } from '../../../base/environment/log.js';
import type { Labels } from '../../../base/environment/metrics-sink.js';

/** What a thread needs to authenticate itself, as values that can be posted to it. */
export interface ThreadCredentials {
  /** Secrets as strings, because a class instance cannot be posted to a thread. */
  readonly secrets?: readonly string[] | undefined;
  /** Certificate and key; if given, the thread uses TLS. */
  readonly tls?: TlsTexts | undefined;
}

/** What a thread needs to make its environment. */
export interface ThreadSetup extends ThreadCredentials {
  /** Differentiated services code point of its connections; undefined: that of the system. */
  readonly dscp?: number | undefined;
}

/** The message by which a thread gets renewed credentials. */
export type RenewedCredentials = { readonly type: 'credentials' } & ThreadCredentials;

/** Log records, audit events and counts of a thread, for the log, the audit log and the metrics of the transport. */
export type ThreadReport =
  | {
      readonly type: 'log';
      readonly level: LogLevel;
      readonly message: string;
      readonly fields?: LogFields | undefined;
    }
  | { readonly type: 'audit'; readonly event: AuditEvent; readonly count: number }
  | { readonly type: 'count'; readonly name: string; readonly amount: number; readonly labels: Labels };

/** The credentials of an environment. */
export function credentialsOf({ secrets, tls }: Environment): ThreadCredentials {
  return { secrets: secrets?.reveal(), tls: tls?.reveal() };
}

/** Uses renewed credentials from now on. */
export function renew({ secrets, tls }: ThreadCredentials, env: Environment): void {
  if (secrets !== undefined) env.secrets?.renew(secrets);
  if (tls !== undefined) env.tls?.renew(tls);
}

/** Calls `renewed` whenever the credentials of an environment change; the result ends that. */
export function onCredentialsRenewed(env: Environment, renewed: () => void): () => void {
  const forgets = [env.secrets, env.tls].map((held) => held?.onRenewed(renewed));
  return () => {
    for (const forget of forgets) forget?.();
  };
}

/** Passes on what a thread reports. */
export function passOn(report: ThreadReport, env: Environment): void {
  if (report.type === 'log') env.log.log(report.level, report.message, report.fields);
  else if (report.type === 'audit') env.audit?.record(report.event, report.count);
  else env.metrics.count(report.name, report.amount, report.labels);
}
