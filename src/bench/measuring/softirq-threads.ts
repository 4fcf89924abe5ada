import { join } from 'node:path';
import { namesIn, textOf } from '../../native/devices/kernel-files.js';

/**
 * The kernel's threads for deferred packet work, `ksoftirqd`. With software RDMA the kernel does the work of a device:
 * within the system calls of the process that reads or, where that takes longer than a few milliseconds, in these
 * threads. Which of them pays says nothing about the process.
 */
export class SoftirqThreads {
  readonly #proc: string;
  readonly #pids: readonly string[];

  /** Finds them below `proc`; in a container there may be none. */
  constructor(proc = '/proc') {
    this.#proc = proc;
    this.#pids = namesIn(proc).filter(
      (name) => /^\d+$/.test(name) && textOf(join(proc, name, 'comm')).startsWith('ksoftirqd/'),
    );
  }

  get count(): number {
    return this.#pids.length;
  }

  /** Processor seconds of all of them since the system started. */
  cpuS(): number {
    let nanoseconds = 0;
    for (const pid of this.#pids) nanoseconds += Number(textOf(join(this.#proc, pid, 'schedstat')).split(' ')[0]);
    return nanoseconds / 1e9;
  }
}
