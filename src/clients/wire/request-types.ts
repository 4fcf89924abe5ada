import { RequestType } from './messages.js';

/** All request types. */
export const REQUEST_TYPES: ReadonlySet<number> = new Set(Object.values(RequestType));
/** Request types that end early when they are cancelled or their time is over. */
export const CANCELLABLE_TYPES: ReadonlySet<number> = new Set([
  RequestType.exists,
  RequestType.get,
  RequestType.set,
  RequestType.getBytes,
  RequestType.setBytes,
  RequestType.delete,
  RequestType.pin,
  RequestType.events,
  RequestType.getStaged,
  RequestType.prefetch,
]);

/**
 * Whether a request may be executed after its client has given it up. A request that can be cancelled then answers that
 * nothing was done. A region is always released, because the client no longer needs it.
 */
export function mayBeginLate(type: number): boolean {
  return CANCELLABLE_TYPES.has(type) || type === RequestType.unregion;
}
