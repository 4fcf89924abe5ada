import type { Status } from './messages.js';

/** A request that is answered with a status that is not 0. */
export class RequestError extends Error {
  readonly status: Status;

  constructor(status: Status, message: string) {
    super(message);
    this.status = status;
  }
}
