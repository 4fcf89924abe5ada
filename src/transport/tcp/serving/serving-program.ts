import type { Environment } from '../../../base/environment/environment.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import type { TcpLimits } from '../protocol/limits.js';
import { type RenewedCredentials, renew, type ThreadReport, type ThreadSetup } from '../threads/thread-messages.js';
import { ServingLoads } from './moved-connections.js';
import { type Registration, Registrations } from './registrations.js';
import { Serving } from './serving.js';
import { ServingCounters } from './serving-connection.js';

/** Start data of the serving thread, which then receives {@link ToServing} and sends {@link FromServing}. */
export interface ServingSetup extends ThreadSetup {
  readonly counterMemory: SharedArrayBuffer;
  readonly host: string;
  readonly port: number;
  readonly limits: TcpLimits;
  /** The place of the thread among several that serve together; undefined: it serves alone. */
  readonly place?: { readonly index: number; readonly loads: SharedArrayBuffer; readonly channel: string } | undefined;
}

export type ToServing =
  | { readonly type: 'register'; readonly registration: Registration }
  | { readonly type: 'deregister'; readonly rkey: number }
  | RenewedCredentials
  | { readonly type: 'close' };

export type FromServing =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'refused'; readonly message: string }
  | { readonly type: 'deregistered'; readonly rkey: number }
  | ThreadReport;

/**
 * The program of a serving thread. A thread owns the listening socket, so that a busy main thread delays no peer.
 * Resolves when it has ended, on request or because the other side closed `messages`.
 */
export function serve(setup: ServingSetup, messages: MessageEnd, env: Environment): Promise<void> {
  const { counterMemory, host, port, limits, place } = setup;
  const send = (message: FromServing): void => messages.post(message);
  const registrations = new Registrations(() => handleWaiting(messages, handle));
  const channel = place === undefined ? undefined : env.threads.channel?.(place.channel);
  const serving = new Serving({
    registrations,
    counters: new ServingCounters(counterMemory),
    limits,
    env,
    host,
    group:
      place === undefined || channel === undefined
        ? undefined
        : { index: place.index, loads: new ServingLoads(place.loads), channel },
  });

  function handle(message: ToServing): void {
    if (message.type === 'register') {
      registrations.add(message.registration);
    } else if (message.type === 'deregister') {
      registrations.remove(message.rkey);
      send({ type: 'deregistered', rkey: message.rkey });
    } else if (message.type === 'credentials') {
      renew(message, env);
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
