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
