import { execFile } from 'node:child_process';
import type { Logger } from '../base/environment/log.js';

/** The program of systemd that sends messages to the service manager. */
const PROGRAM = 'systemd-notify';
/** Milliseconds that one message may take; the program waits until systemd has read it. */
const MESSAGE_TIMEOUT_MS = 5_000;

/**
 * Tells systemd how far a service of `Type=notify` is, over the datagram socket that NOTIFY_SOCKET names. Messages go
 * through the program `systemd-notify`, as Node.js has no Unix datagram sockets; the unit needs `NotifyAccess=all`,
 * since the program is a child of the service. Without NOTIFY_SOCKET nothing is sent. A message that cannot be sent is
 * logged.
 */
export class ServiceManager {
  readonly #isListening: boolean;
  readonly #log: Logger;
  #sending: Promise<void> = Promise.resolve();

  constructor(environment: { readonly NOTIFY_SOCKET?: string | undefined }, log: Logger) {
    this.#isListening = Boolean(environment.NOTIFY_SOCKET);
    this.#log = log;
  }

  /** Shows a text in `systemctl status`. */
  status(text: string): Promise<void> {
    return this.#send(statusOf(text));
  }

  /** The service has started: units that wait for it can start. */
  ready(status: string): Promise<void> {
    return this.#send('READY=1', statusOf(status));
  }

  /** The service ends now: systemd allows it the TimeoutStopSec of its unit, then kills it. */
  stopping(status: string): Promise<void> {
    return this.#send('STOPPING=1', statusOf(status));
  }

  /** Sends the assignments as one message, after all earlier ones. Never rejects. */
  #send(...assignments: readonly string[]): Promise<void> {
    if (!this.#isListening) return this.#sending;
    this.#sending = this.#sending.then(() => this.#run(assignments));
    return this.#sending;
  }

  #run(assignments: readonly string[]): Promise<void> {
    return new Promise((resolve) => {
      execFile(PROGRAM, ['--', ...assignments], { timeout: MESSAGE_TIMEOUT_MS }, (error, _stdout, stderr) => {
        if (error !== null) {
          const reason = 'code' in error && error.code === 'ENOENT' ? `${PROGRAM} is not installed` : stderr.trim();
          this.#log.log('warn', 'cannot tell systemd about this service', {
            message: assignments[0],
            reason: reason || error.message,
          });
        }
        resolve();
      });
    });
  }
}

/** A line feed would begin another assignment. */
function statusOf(text: string): string {
  return `STATUS=${text.replace(/\s+/g, ' ')}`;
}
