import type { EventOwner } from './event-heap.js';

/** A simulated process, as far as its clock, its files and its connections know it. */
export interface KernelProcess extends EventOwner {
  /** Once it is false, nothing of the process runs any more. */
  readonly isAlive: boolean;
  /** @internal Runs `run` in the process after a delay. Does nothing once the process is dead. */
  schedule(kind: string, run: () => void, delayMs?: number): void;
  /**
   * @internal Runs `fn` in the process: as a part of the present event, which is the kernel's, or as soon as the
   * process runs.
   */
  enter(kind: string, fn: () => void): void;
}
