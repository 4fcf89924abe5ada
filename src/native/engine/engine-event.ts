import { getSystemErrorMap } from 'node:util';
import {
  RDMA_EVENT_CAUSES,
  RDMA_EVENT_KINDS,
  type RdmaEvent,
  type RdmaEventCause,
  type RdmaEventKind,
} from '../addon/contract.js';

/** An event of an engine, with its numbers translated. */
export interface EngineEvent extends Omit<RdmaEvent, 'kind' | 'cause'> {
  readonly kind: RdmaEventKind;
  readonly cause: RdmaEventCause;
  /** The cause in words, for people. */
  readonly reason: string;
}

/** Words for the causes that need no further number. */
const EVENT_TEXTS: Readonly<Record<Exclude<RdmaEventCause, 'system_error' | 'completion_error'>, string>> = {
  wrong_secret: 'the peer does not know the cluster_secret of this node',
  unknown_protocol: 'the peer speaks another protocol, or another version of it',
  too_many_connections: 'this node has too many connections',
  refused_secret: 'the peer has another cluster_secret',
  refused_version: 'the peer speaks another version of the protocol',
  refused_too_many: 'the peer has too many connections',
  refused_closing: 'the peer is closing',
  refused: 'the peer refused the connection',
  nobody_listens: 'no program listens at the address of the peer',
  unreachable: 'the peer cannot be reached',
  went_away: 'the peer went away while the connection was made',
  closed_by_peer: 'the peer has closed the connection',
  no_answer: 'the peer did not answer in time',
  no_progress: 'nothing completes any more',
  read_too_late: 'a read was not done in time',
  not_posted: 'reads cannot be posted',
  no_address: 'the name of the peer has no address',
  other_device: 'the route to the peer is through another device',
  completion_queue_full: 'the completion queue has no room for another connection',
  other_engine: 'another engine answered at the address of the peer',
  no_region_table: 'what the peer serves is no region table',
  device_failed: 'the device has failed',
  completion_queue_failed: 'the completion queue has failed',
  port_active: 'the port is active',
  port_down: 'the port is down',
};

/** Words for each number of `ibv_wc_status`. */
const COMPLETION_TEXTS: readonly string[] = [
  'success',
  'local length error',
  'local queue pair operation error',
  'local EE context operation error',
  'local protection error',
  'work request flushed',
  'memory window bind error',
  'bad response',
  'local access error',
  'remote invalid request',
  'remote access error',
  'remote operation error',
  'transport retries exceeded',
  'receiver-not-ready retries exceeded',
  'local RDD violation',
  'remote invalid RD request',
  'remote abort',
  'invalid EE context number',
  'invalid EE context state',
  'fatal error',
  'response timeout',
  'general error',
  'tag matching error',
  'tag matching rendezvous incomplete',
];

/** Translates what the addon has reported; the only place that does. */
export function engineEvent(event: RdmaEvent): EngineEvent {
  const kind = RDMA_EVENT_KINDS[event.kind] as RdmaEventKind;
  const cause = RDMA_EVENT_CAUSES[event.cause] as RdmaEventCause;
  return { ...event, kind, cause, reason: reasonOf(cause, event) };
}

function reasonOf(cause: RdmaEventCause, { errno, wcStatus }: RdmaEvent): string {
  if (cause === 'system_error') return getSystemErrorMap().get(-errno)?.[1] ?? `error ${errno}`;
  if (cause === 'completion_error') return COMPLETION_TEXTS[wcStatus] ?? `work completion status ${wcStatus}`;
  return EVENT_TEXTS[cause];
}
