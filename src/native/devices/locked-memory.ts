import { readFileSync } from 'node:fs';
import { formatSize } from '../../base/sizes.js';

/** How much memory this process may lock. RDMA locks the memory that it reads and writes. */
export interface LockedMemory {
  /** Soft limit; infinite if there is none or it is unknown. */
  readonly limitBytes: number;
  /** Whether the process has CAP_IPC_LOCK, which lifts the limit. */
  readonly isPrivileged: boolean;
}

/** Advice for raising the limit, for all ways to run a node. */
export const LOCKED_MEMORY_ADVICE =
  'raise the limit: `ulimit -l unlimited` in a shell, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for Docker, ' +
  'capability IPC_LOCK in the securityContext for Kubernetes';

/** Bit number of CAP_IPC_LOCK in a capability set. */
const CAP_IPC_LOCK = 14n;

/** Returns the limit of this process on Linux; no limit on other systems. Does not throw. */
export function lockedMemory(proc = '/proc/self'): LockedMemory {
  const limit = /^Max locked memory\s+(\S+)/m.exec(textOf(`${proc}/limits`))?.[1];
  const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(textOf(`${proc}/status`))?.[1] ?? '0';
  return {
    limitBytes: limit === undefined || limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit),
    isPrivileged: ((BigInt(`0x${capabilities}`) >> CAP_IPC_LOCK) & 1n) === 1n,
  };
}

/** Bytes that this process can lock. */
export function lockableBytes({ limitBytes, isPrivileged }: LockedMemory): number {
  return isPrivileged ? Number.POSITIVE_INFINITY : limitBytes;
}

/** The limit in words, such as `8 mb at most` or `any amount (CAP_IPC_LOCK)`. */
export function lockedMemoryText({ limitBytes, isPrivileged }: LockedMemory): string {
  if (limitBytes === Number.POSITIVE_INFINITY) return 'any amount (no limit)';
  if (isPrivileged) return `any amount (CAP_IPC_LOCK; the limit without it is ${formatSize(limitBytes)})`;
  return `${formatSize(limitBytes)} at most (RLIMIT_MEMLOCK)`;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
