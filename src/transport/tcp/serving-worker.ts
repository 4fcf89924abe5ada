/** The program of the serving thread: owns the listening socket, so that a busy main thread stalls no peer. */
import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Registrations } from './registrations.js';
import { Serving } from './serving.js';
import { ServingCounters } from './serving-counters.js';
import { servingEnvironment } from './serving-environment.js';
import type { FromServing, ServingSetup, ToServing } from './serving-messages.js';

function serve({ control, counterMemory, host, port, limits, secrets, tls }: ServingSetup): void {
  const registrations = new Registrations(() => handleWaiting(control, handle));
  const counters = new ServingCounters(counterMemory);
  const env = servingEnvironment({ secrets, tls }, (report) => send(control, report));
  const serving = new Serving({ registrations, counters, limits, env });

  function handle(message: ToServing): void {
    if (message.type === 'register') {
      registrations.add(message.registration);
    } else if (message.type === 'deregister') {
      registrations.remove(message.rkey);
      send(control, { type: 'deregistered', rkey: message.rkey });
    } else {
      serving.stop().then(() => control.close());
    }
  }

  control.on('message', handle);
  serving.start(host, port).then(
    (listeningPort) => send(control, { type: 'listening', port: listeningPort }),
    // The other side ends this thread: a port that is closed here may take its last message with it.
    (error: Error) => send(control, { type: 'refused', message: error.message }),
  );
}

/** Handles what has been posted and not been delivered yet, in order. */
function handleWaiting(control: MessagePort, handle: (message: ToServing) => void): void {
  for (let next = receiveMessageOnPort(control); next !== undefined; next = receiveMessageOnPort(control)) {
    handle(next.message as ToServing);
  }
}

function send(control: MessagePort, message: FromServing): void {
  control.postMessage(message);
}

serve(workerData as ServingSetup);
