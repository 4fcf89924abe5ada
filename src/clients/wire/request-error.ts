import { ProtocolError } from '../../base/errors.js';
import { Status } from './messages.js';

/** Answers a request with a status other than 0. */
export class RequestError extends Error {
  readonly status: Status;

  constructor(status: Status, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Returns the status and message that a client gets for an error. Messages of other modules are not sent, because they
 * may contain addresses of this process.
 */
export function statusOf(error: unknown): [status: Status, message: string] {
  if (error instanceof RequestError) return [error.status, error.message];
  if (error instanceof ProtocolError) return [Status.badRequest, error.message];
  const code = (error as { readonly code?: unknown } | null | undefined)?.code;
  if (code === 'ERR_ARGUMENT') return [Status.badRequest, 'the node does not take such pages'];
  if (code === 'ERR_CLOSED') return [Status.closing, 'the node is closing'];
  return [Status.failed, 'the node has failed; its log says more'];
}
