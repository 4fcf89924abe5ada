import type { AuditEvent } from '../../../base/environment/audit.js';
import type { TlsTexts } from '../../../base/environment/credentials.js';
import type { Environment } from '../../../base/environment/environment.js';
import type { LogFields, LogLevel } from '../../../base/environment/log.js';
import type { Labels } from '../../../base/environment/metrics-sink.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import type { TcpLimits } from '../protocol/limits.js';
import { type Registration, Registrations } from './registrations.js';
import { Serving } from './serving.js';
import { ServingCounters } from './serving-connection.js';

/** Start data of the serving thread, which then receives {@link ToServing} and sends {@link FromServing}. */
export interface ServingSetup {
  readonly counterMemory: SharedArrayBuffer;
  readonly host: string;
  readonly port: number;
  readonly limits: TcpLimits;
  /** Secrets as strings, because a class instance cannot be posted to a thread. */
  readonly secrets?: readonly string[] | undefined;
  /** Certificate and key; if given, the thread uses TLS. */
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
 * Log records, audit events and counts of the serving thread, for the log, the audit log and the metrics of the
 * transport.
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

/**
 * The program of the serving thread. The thread owns the listening socket, so that a busy main thread delays no peer.
 * Resolves when it has ended, on request or because the other side closed `messages`.
 */
export function serve(setup: ServingSetup, messages: MessageEnd, env: Environment): Promise<void> {
  const { counterMemory, host, port, limits } = setup;
  const send = (message: FromServing): void => messages.post(message);
  const registrations = new Registrations(() => handleWaiting(messages, handle));
  const serving = new Serving({ registrations, counters: new ServingCounters(counterMemory), limits, env, host });

  function handle(message: ToServing): void {
    if (message.type === 'register') {
      registrations.add(message.registration);
    } else if (message.type === 'deregister') {
      registrations.remove(message.rkey);
      send({ type: 'deregistered', rkey: message.rkey });
    } else if (message.type === 'credentials') {
      if (message.secrets !== undefined) env.secrets?.renew(message.secrets);
      if (message.tls !== undefined) env.tls?.renew(message.tls);
    } else {
      serving.stop().then(() => messages.close());
    }
  }

  messages.onMessage((message) => handle(message as ToServing));
  const starting = serving.start(port).then(
    (listeningPort) => send({ type: 'listening', port: listeningPort }),
    // The other side ends this thread. Closing the messages here could lose the last one.
    (error: Error) => send({ type: 'refused', message: error.message }),
  );
  return new Promise((resolve) => {
    messages.onClose(() => resolve(starting.then(() => serving.end())));
  });
}

/** Handles posted messages that were not delivered yet, in order. */
function handleWaiting(messages: MessageEnd, handle: (message: ToServing) => void): void {
  for (let next = messages.receive(); next !== undefined; next = messages.receive()) handle(next as ToServing);
}
