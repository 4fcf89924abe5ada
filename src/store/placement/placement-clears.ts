import { assertAtMost } from '../../base/assert.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import {
  DROP_WAIT_MAX_MS,
  PLACEMENT_CLEAR_MAX_PREFIXES,
  PLACEMENT_CLEARS_MAX_COUNT,
  STATEMENT_RETRY_MAX_MS,
  STATEMENT_RETRY_MIN_MS,
} from '../../base/limits.js';
import type { ClearRequest } from './placement-messages.js';
import type { StorageNode } from './storage-nodes.js';

export interface PlacementClearsParts {
  readonly nodeId: string;
  /** The live storage nodes, without this one. */
  readonly storageNodes: () => readonly StorageNode[];
  /** Asks a storage node to drop what this node has placed there. False: it has not answered. */
  readonly ask: (nodeId: string, request: ClearRequest) => Promise<boolean>;
  /** The next version of this node. */
  readonly nextVersion: () => number;
  readonly env: Pick<Environment, 'clock' | 'random'>;
}

/** A call of `clear()`. */
interface Clear {
  /** Calls are numbered from 1 on. */
  readonly number: number;
  readonly request: ClearRequest;
}

/** A storage node, and what it has been told. */
interface Told {
  readonly incarnation: number;
  /** Number of the last call that it has carried out. */
  number: number;
  isTelling: boolean;
  failures: number;
  cancelRetry: (() => void) | undefined;
  waiting: (() => void)[];
}

/**
 * Has storage nodes drop what this node has placed there when its pages are cleared. A storage node that does not answer is told again until it
 * does or is no member; one that joins is told of the calls before, because it may have been away with what it has on its disk.
 */
export class PlacementClears {
  readonly #parts: PlacementClearsParts;
  /** The remembered calls, the earliest first. */
  readonly #clears: Clear[] = [];
  readonly #told = new Map<string, Told>();
  #number = 0;
  #isClosed = false;

  constructor(parts: PlacementClearsParts) {
    this.#parts = parts;
  }

  /** Clears what was set before this call. Resolves when all storage nodes have answered, after DROP_WAIT_MAX_MS at the latest. */
  async clear(prefixes: readonly string[] | undefined): Promise<void> {
    const { nodeId, nextVersion, env } = this.#parts;
    const few = prefixes !== undefined && prefixes.length <= PLACEMENT_CLEAR_MAX_PREFIXES ? prefixes : undefined;
    const request = { placer: nodeId, voidBelow: nextVersion(), prefixes: few };
    this.#clears.push({ number: ++this.#number, request });
    if (this.#clears.length > PLACEMENT_CLEARS_MAX_COUNT) this.#joinEarliest();
    this.membersChanged();
    const answers = [...this.#told.values()].flatMap((told) =>
      told.failures > 0 ? [] : [new Promise<void>((resolve) => told.waiting.push(resolve))],
    );
    if (answers.length > 0) await within(env.clock, DROP_WAIT_MAX_MS, Promise.all(answers));
  }

  /** Follows a change of members. */
  membersChanged(): void {
    if (this.#isClosed || this.#clears.length === 0) return;
    const nodes = this.#parts.storageNodes();
    const live = new Map(nodes.map((node) => [node.nodeId, node.incarnation]));
    for (const [nodeId, told] of this.#told) if (live.get(nodeId) !== told.incarnation) this.#forget(nodeId, told);
    for (const { nodeId, incarnation } of nodes) {
      let told = this.#told.get(nodeId);
      if (told === undefined) {
        told = { incarnation, number: 0, isTelling: false, failures: 0, cancelRetry: undefined, waiting: [] };
        this.#told.set(nodeId, told);
      }
      if (!told.isTelling && told.cancelRetry === undefined && told.number < this.#number)
        void this.#tell(nodeId, told);
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const [nodeId, told] of this.#told) this.#forget(nodeId, told);
  }

  async #tell(nodeId: string, told: Told): Promise<void> {
    told.isTelling = true;
    for (let next = this.#after(told); next !== undefined && this.#isTold(nodeId, told); next = this.#after(told)) {
      if (!(await this.#parts.ask(nodeId, next.request))) {
        told.isTelling = false;
        wake(told);
        if (this.#isTold(nodeId, told)) this.#tellLater(nodeId, told);
        return;
      }
      told.failures = 0;
      told.number = next.number;
    }
    told.isTelling = false;
    wake(told);
  }

  #tellLater(nodeId: string, told: Told): void {
    const { clock, random } = this.#parts.env;
    const pauseMs = Math.min(STATEMENT_RETRY_MIN_MS * 2 ** told.failures++, STATEMENT_RETRY_MAX_MS);
    told.cancelRetry = clock.after(pauseMs * (0.75 + random.u32() / 2 ** 33), () => {
      told.cancelRetry = undefined;
      void this.#tell(nodeId, told);
    });
  }

  /** The first call that a node has not carried out. */
  #after({ number }: Told): Clear | undefined {
    return this.#clears.find((clear) => clear.number > number);
  }

  #isTold(nodeId: string, told: Told): boolean {
    return !this.#isClosed && this.#told.get(nodeId) === told;
  }

  #forget(nodeId: string, told: Told): void {
    this.#told.delete(nodeId);
    told.cancelRetry?.();
    wake(told);
  }

  /** Makes one call of the two earliest: it clears all pages that are older than the later one, of all namespaces. */
  #joinEarliest(): void {
    const [, second] = this.#clears as [Clear, Clear];
    this.#clears.splice(0, 2, { number: second.number, request: { ...second.request, prefixes: undefined } });
  }

  /** Throws `InvariantError` unless the calls are within their limit, and nodes are told of calls that there were. */
  verify(): void {
    assertAtMost('placement clears: calls', this.#clears.length, PLACEMENT_CLEARS_MAX_COUNT);
    for (const [nodeId, { number }] of this.#told) {
      assertAtMost(`placement clears: calls of which ${nodeId} is told`, number, this.#number);
    }
  }
}

function wake(told: Told): void {
  for (const resolve of told.waiting.splice(0)) resolve();
}
