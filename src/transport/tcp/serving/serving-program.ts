import type { Environment } from '../../../base/environment/environment.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import { Registrations } from './registrations.js';
import { Serving } from './serving.js';
import { ServingCounters } from './serving-counters.js';
import type { FromServing, ServingSetup, ToServing } from './serving-messages.js';

/**
 * The program of the serving thread, which owns the listening socket, so that a busy main thread stalls no peer.
 * Resolves when it has ended: on request, or because the other side closed `messages`.
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
    // The other side ends this thread: closing the messages here could lose the last one.
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
