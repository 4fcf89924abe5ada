import { ArgumentError } from '../../base/errors.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import type { Address, LocalRange, ReadOp } from './transport.js';

/**
 * Checks an operation and returns the region that its bytes go to; undefined if it has a scatter list, whose ranges are
 * checked instead. Throws `ArgumentError` for a malformed operation and for local memory that is not live; `index` is
 * its position in the batch, for the message.
 */
export function checkReadOp(op: ReadOp, index: number, maxBytes: number): HostRegion | undefined {
  if (!Number.isInteger(op.length) || op.length < 0 || op.length > maxBytes) {
    throw new ArgumentError(
      `batchRead: operation ${index}: length must be a whole number of 0 to ${maxBytes} bytes, got ${String(op.length)}`,
    );
  }
  if (op.checksum !== undefined && op.checksum >>> 0 !== op.checksum) {
    throw new ArgumentError(
      `batchRead: operation ${index}: checksum must be a whole number of 0 to 2^32 - 1, got ${String(op.checksum)}`,
    );
  }
  if (op.stamp !== undefined && !(Number.isSafeInteger(op.stamp) && op.stamp >= 0 && op.stamp < 2 ** 48)) {
    throw new ArgumentError(
      `batchRead: operation ${index}: stamp must be a whole number of 0 to 2^48 - 1, got ${String(op.stamp)}`,
    );
  }
  if (op.scatter === undefined) return destinationRegion(op.localAddr, op.length, index);
  checkScatter(op.scatter, op.length, index);
  return undefined;
}

/** The live region that contains the range. Throws `ArgumentError` if there is none. */
export function destinationRegion(addr: Address, length: number, index: number): HostRegion {
  const isAddress = typeof addr === 'bigint' || Number.isSafeInteger(addr);
  const region = isAddress && Number.isInteger(length) ? regionOf(Number(addr), length) : null;
  if (region !== null) return region;
  throw new ArgumentError(
    `batchRead: operation ${index}: ${String(length)} bytes from local address ${String(addr)} on are not within a live HostRegion`,
  );
}

/** Whether an operation can be sent to a peer: its endpoint is a text, and rkey and address fit their fields. */
export function isSendable({ remoteEndpoint, rkey, remoteAddr }: ReadOp): boolean {
  const from = Number(remoteAddr);
  return typeof remoteEndpoint === 'string' && Number.isSafeInteger(from) && from >= 0 && rkey >>> 0 === rkey;
}

function checkScatter(scatter: readonly LocalRange[], length: number, index: number): void {
  let totalBytes = 0;
  for (const range of scatter) {
    destinationRegion(range.addr, range.length, index);
    totalBytes += range.length;
  }
  if (totalBytes !== length) {
    throw new ArgumentError(
      `batchRead: operation ${index}: the scatter ranges have ${totalBytes} bytes in all, its length is ${length}`,
    );
  }
}
