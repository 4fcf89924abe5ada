import { ArgumentError } from '../../base/errors.js';
import { regionOf } from '../../memory/address-space.js';
import type { HostRegion } from '../../memory/host-region.js';
import type { LocalRange, ReadOp } from '../transport.js';
import type { TcpLimits } from './limits.js';
import { NO_CHECKSUM, type ReadBatch, ReadRequest } from './read-request.js';

/** The requests of one peer, in the order in which they are to be sent. */
export interface PeerPlan {
  readonly endpoint: string;
  readonly requests: ReadRequest[];
}

/**
 * Sorts the operations of a batch into requests, peer by peer. Throws `ArgumentError`, before
 * anything is sent, for local memory that is not live and for malformed operations. Operations that
 * no peer can grant (an endpoint that is no text, an rkey or address that does not fit its field) end
 * false at once: an error while requests are handed out would leave those before it in flight.
 */
export function planReads(ops: readonly ReadOp[], batch: ReadBatch, limits: TcpLimits): PeerPlan[] {
  const plans = new Map<string, PeerPlan>();
  let plan: PeerPlan | undefined;
  let request: ReadRequest | undefined;
  for (let index = 0; index < ops.length; index++) {
    const op = ops[index] as ReadOp;
    checkOp(op, index, limits);
    const start = Number(op.localAddr);
    const region = op.scatter === undefined ? regionAt(op.localAddr, start, op.length, index) : undefined;
    const remoteAddr = Number(op.remoteAddr);
    if (!isSendable(op, remoteAddr)) {
      batch.finish(index, false);
      continue;
    }
    if (plan === undefined || plan.endpoint !== op.remoteEndpoint) {
      plan = planFor(plans, op.remoteEndpoint);
      request = plan.requests.at(-1);
    }
    if (request === undefined || isFull(request, op.length, limits)) {
      request = new ReadRequest(batch);
      plan.requests.push(request);
    }
    const checksum = op.checksum === undefined ? NO_CHECKSUM : op.checksum;
    request.beginOp({ index, rkey: op.rkey, remoteAddr, length: op.length, checksum });
    if (region !== undefined) addPieces(request, region, start, op.length);
    else addScatter(request, op.scatter ?? [], index);
    request.endOp();
  }
  return [...plans.values()];
}

function planFor(plans: Map<string, PeerPlan>, endpoint: string): PeerPlan {
  let plan = plans.get(endpoint);
  if (plan === undefined) {
    plan = { endpoint, requests: [] };
    plans.set(endpoint, plan);
  }
  return plan;
}

function isFull(request: ReadRequest, moreBytes: number, limits: TcpLimits): boolean {
  return request.opCount >= limits.requestMaxOps || request.totalBytes + moreBytes > limits.requestTargetBytes;
}

function isSendable({ remoteEndpoint, rkey }: ReadOp, remoteAddr: number): boolean {
  return (
    typeof remoteEndpoint === 'string' && Number.isSafeInteger(remoteAddr) && remoteAddr >= 0 && rkey >>> 0 === rkey
  );
}

/** The memory of a range within a region, segment by segment. */
function addPieces(request: ReadRequest, region: HostRegion, start: number, length: number): void {
  let offset = start - region.start;
  for (let rest = length; rest > 0; ) {
    const segmentIndex = Math.floor(offset / region.segmentBytes);
    const segment = region.segments[segmentIndex] as Uint8Array;
    const at = offset - segmentIndex * region.segmentBytes;
    const take = Math.min(rest, segment.length - at);
    request.addPiece(segment, at, take);
    offset += take;
    rest -= take;
  }
}

function addScatter(request: ReadRequest, scatter: readonly LocalRange[], index: number): void {
  for (const { addr, length } of scatter) {
    const start = Number(addr);
    addPieces(request, regionAt(addr, start, length, index), start, length);
  }
}

function checkOp(op: ReadOp, index: number, limits: TcpLimits): void {
  if (!Number.isInteger(op.length) || op.length < 0 || op.length > limits.readMaxBytes) {
    throw new ArgumentError(
      `batchRead: operation ${index}: length must be a whole number of 0 to ${limits.readMaxBytes} bytes, got ${String(op.length)}`,
    );
  }
  if (op.checksum !== undefined && op.checksum >>> 0 !== op.checksum) {
    throw new ArgumentError(
      `batchRead: operation ${index}: checksum must be a whole number of 0 to 2^32 - 1, got ${String(op.checksum)}`,
    );
  }
  if (op.scatter !== undefined) checkScatter(op.scatter, op.length, index);
}

function checkScatter(scatter: readonly LocalRange[], length: number, index: number): void {
  let totalBytes = 0;
  for (const range of scatter) {
    regionAt(range.addr, Number(range.addr), range.length, index);
    totalBytes += range.length;
  }
  if (totalBytes !== length) {
    throw new ArgumentError(
      `batchRead: operation ${index}: the scatter ranges have ${totalBytes} bytes in all, its length is ${length}`,
    );
  }
}

/** The live region that has the range; `start` is `addr` as a number. */
function regionAt(addr: bigint, start: number, length: number, index: number): HostRegion {
  const region = typeof addr === 'bigint' && Number.isInteger(length) ? regionOf(start, length) : null;
  if (region !== null) return region;
  throw new ArgumentError(
    `batchRead: operation ${index}: ${String(length)} bytes from local address ${String(addr)} on are not within a live HostRegion`,
  );
}
