import type { HostRegion } from '../../../memory/host-region.js';
import { NO_STAMP } from '../../../memory/page-stamp.js';
import { checkReadOp, destinationRegion, isSendable } from '../../contract/read-checks.js';
import type { LocalRange, ReadOp } from '../../contract/transport.js';
import type { TcpLimits } from '../protocol/limits.js';
import { NO_CHECKSUM, type ReadBatch, ReadRequest } from './read-request.js';

/** The requests to one peer, in the order of sending. */
export interface PeerPlan {
  readonly endpoint: string;
  readonly requests: ReadRequest[];
}

/**
 * Sorts the operations of a batch into requests, peer by peer. Throws `ArgumentError`, before anything is sent, for
 * local memory that is not live and for malformed operations. Operations that no peer can grant (the endpoint is no
 * text, or rkey or address do not fit their fields) end false at once: an error while requests are sent would leave
 * earlier ones in flight.
 */
export function planReads(ops: readonly ReadOp[], batch: ReadBatch, limits: TcpLimits): PeerPlan[] {
  const plans = new Map<string, PeerPlan>();
  let plan: PeerPlan | undefined;
  let request: ReadRequest | undefined;
  for (let index = 0; index < ops.length; index++) {
    const op = ops[index] as ReadOp;
    const region = checkReadOp(op, index, limits.readMaxBytes);
    if (!isSendable(op)) {
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
    const { rkey, length, stamp = NO_STAMP } = op;
    request.beginOp({ index, rkey, remoteAddr: Number(op.remoteAddr), length, checksum, stamp });
    if (region !== undefined) addPieces(request, region, Number(op.localAddr), op.length);
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

/** The memory of a range within a region, segment by segment. */
function addPieces(request: ReadRequest, region: HostRegion, start: number, length: number): void {
  let offset = start - region.start;
  for (let rest = length; rest > 0; ) {
    const segmentIndex = Math.floor(offset / region.segmentBytes);
    const segment = region.segments[segmentIndex] as Uint8Array;
    const at = offset - segmentIndex * region.segmentBytes;
    const room = segment.length - at;
    // A segment that its owner has transferred away has no room: the request is dropped when this piece is due.
    const take = room > 0 ? Math.min(rest, room) : rest;
    request.addPiece(segment, at, take);
    offset += take;
    rest -= take;
  }
}

function addScatter(request: ReadRequest, scatter: readonly LocalRange[], index: number): void {
  for (const { addr, length } of scatter) {
    addPieces(request, destinationRegion(addr, length, index), Number(addr), length);
  }
}
