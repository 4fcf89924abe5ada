import { getSystemErrorMap, getSystemErrorName } from 'node:util';
import type { Environment } from '../../base/environment/environment.js';
import type { LogLevel } from '../../base/environment/log.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { RdmaError } from '../../base/errors.js';
import {
  type NativeFailure,
  RDMA_EVENT_CAUSES,
  RDMA_EVENT_KINDS,
  type RdmaEvent,
  type RdmaEventCause,
  type RdmaEventKind,
} from '../addon/contract.js';
import { LOCKED_MEMORY_ADVICE, lockedMemory, lockedMemoryText } from '../devices/locked-memory.js';

/** Advice for an errno of a call of the RDMA libraries; the first match counts. */
const ADVICE: readonly (readonly [call: RegExp, errnos: readonly string[], advice: string])[] = [
  [
    /bind|listen/,
    ['EADDRINUSE'],
    'another program listens on that port: choose another one (rdma_port, or bindPort of an engine), or 0 for a free one',
  ],
  [
    /bind|listen/,
    ['EADDRNOTAVAIL', 'ENODEV', 'EXDEV'],
    'the address is not one of an RDMA device: see `meshcache doctor`',
  ],
  [/reg_mr/, ['EFAULT', 'EINVAL'], 'the range must be mapped and writable memory of this process'],
  [
    /./,
    ['EACCES', 'EPERM'],
    'this user may not use /dev/infiniband: a udev rule, group or container option has to allow it',
  ],
];

/** Converts an error of the addon to the public error; `doing` says what failed. */
export function rdmaError(doing: string, cause: unknown): RdmaError {
  const { call = '', errno = 0, device = '' } = cause as Partial<NativeFailure>;
  const where = device === '' ? '' : ` (device ${device})`;
  const advice = adviceOn(call, errno);
  const text = `${doing}: ${(cause as Error).message}${where}${advice === '' ? '' : `; ${advice}`}`;
  return new RdmaError(text, { device, call, errno, cause });
}

/** Returns the name of an errno such as `ENOMEM`, or its number if it has none. */
function errnoName(errno: number): string {
  try {
    return getSystemErrorName(-errno);
  } catch {
    return String(errno);
  }
}

function adviceOn(call: string, errno: number): string {
  if (errno === 0) return '';
  const name = errnoName(errno);
  if (/reg_mr/.test(call) && (name === 'ENOMEM' || name === 'EPERM' || name === 'EAGAIN')) {
    return `memory to be read by RDMA is locked, and this process may lock ${lockedMemoryText(lockedMemory())}; ${LOCKED_MEMORY_ADVICE}`;
  }
  return ADVICE.find(([calls, names]) => calls.test(call) && names.includes(name))?.[2] ?? '';
}

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

/** Translates an event that the addon reported. This is the only place that does. */
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

const LEVELS: Readonly<Partial<Record<RdmaEventKind, LogLevel>>> = {
  rejected: 'warn',
  rejected_peer: 'warn',
  device_error: 'error',
};

/** Logs events of an engine, rate-limited per kind, peer and device. */
export class EventLog {
  readonly #log: SparseLog;

  constructor(env: Environment) {
    this.#log = new SparseLog(env);
  }

  record(event: EngineEvent): void {
    const fields = {
      peer: event.peer || undefined,
      device: event.device || undefined,
      call: event.call || undefined,
      errno: event.errno === 0 ? undefined : errnoName(event.errno),
      wc_status: event.wcStatus < 0 ? undefined : event.wcStatus,
      reason: event.reason,
    };
    const message = `RDMA: ${event.kind.replaceAll('_', ' ')}`;
    this.#log.log(LEVELS[event.kind] ?? 'info', message, fields, `${event.peer} ${event.device}`);
  }
}
