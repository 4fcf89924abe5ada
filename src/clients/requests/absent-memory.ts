import { CLIENT_ABSENT_MAX_BYTES, CLIENTS_ABSENT_MAX_BYTES } from '../../base/limits.js';
import { loadNative } from '../../native/addon/loader.js';
import type { LocalRange } from '../../transport/contract/transport.js';
import { Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';

/** Bytes of memory of all clients that have been charged to this node. */
export class AbsentBudget {
  usedBytes = 0;
}

/**
 * Limits how much client memory is charged to this node. The system charges a page of a shared file to the control
 * group of the process that touches it first, for as long as the file has the page. Without a limit, a client could
 * make its node pay for memory until the kernel kills the node.
 */
export class AbsentMemory {
  readonly #all: AbsentBudget;
  #usedBytes = 0;
  /** Used for requests with a single range, which are the most frequent ones. */
  readonly #onePair = new Float64Array(2);

  constructor(all: AbsentBudget) {
    this.#all = all;
  }

  /**
   * Counts the parts of these mapped ranges that no process has touched yet. Throws {@link RequestError} if this node
   * would pay for more than its limit.
   */
  take(ranges: readonly LocalRange[]): void {
    if (ranges.length === 0) return;
    const pairs = ranges.length === 1 ? this.#onePair : new Float64Array(2 * ranges.length);
    for (let i = 0; i < ranges.length; i++) {
      const { addr, length } = ranges[i] as LocalRange;
      pairs[2 * i] = Number(addr);
      pairs[2 * i + 1] = length;
    }
    const bytes = loadNative().addon?.memoryAbsent(pairs) ?? 0;
    if (bytes === 0) return;
    const restBytes = Math.min(
      CLIENT_ABSENT_MAX_BYTES - this.#usedBytes,
      CLIENTS_ABSENT_MAX_BYTES - this.#all.usedBytes,
    );
    if (bytes > restBytes) {
      throw new RequestError(
        Status.absent,
        `${bytes} bytes of the memory are not there, and the node pays for ${restBytes} more; touch them first`,
      );
    }
    this.#usedBytes += bytes;
    this.#all.usedBytes += bytes;
  }
}
