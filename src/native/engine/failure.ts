import { getSystemErrorName } from 'node:util';
import { RdmaError } from '../../base/errors.js';
import type { NativeFailure } from '../addon/contract.js';
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

/** The public error for one that the addon threw; `doing` says what failed. */
export function rdmaError(doing: string, cause: unknown): RdmaError {
  const { call = '', errno = 0, device = '' } = cause as Partial<NativeFailure>;
  const where = device === '' ? '' : ` (device ${device})`;
  const advice = adviceOn(call, errno);
  const text = `${doing}: ${(cause as Error).message}${where}${advice === '' ? '' : `; ${advice}`}`;
  return new RdmaError(text, { device, call, errno, cause });
}

/** The name of an errno such as `ENOMEM`, or its number if it has none. */
export function errnoName(errno: number): string {
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
