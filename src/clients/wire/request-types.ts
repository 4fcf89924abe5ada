import { RequestType } from './messages.js';

/** All request types. */
export const REQUEST_TYPES: ReadonlySet<number> = new Set(Object.values(RequestType));
/** Request types that end early when they are cancelled, or when their time is over. */
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
]);

/**
 * Whether a request may be executed when its client has given it up: a cancelled one answers that nothing was done.
 * Letting go of a region is always done, as the client has no further use for it.
 */
export function mayBeginLate(type: number): boolean {
  return CANCELLABLE_TYPES.has(type) || type === RequestType.unregion;
}
