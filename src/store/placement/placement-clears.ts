import { assertAtMost } from '../../base/assert.js';
import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
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

/**
 * Has storage nodes drop what this node has placed there when its pages are cleared. A storage node that does not answer is told again until it
 * does or is no member; one that joins is told of the calls before, because it may have been away with what it has on its disk.
 */
export class PlacementClears {
  readonly #parts: PlacementClearsParts;
  /** The remembered calls, the earliest first. The first stands for all before it, too. */
  readonly #clears: ClearRequest[] = [];
  readonly #untold: PeerQueue<ClearRequest>;
  /** The starts of storage nodes that are told, by {@link startOf}. */
  #starts = new Map<string, StorageNode>();

  constructor(parts: PlacementClearsParts) {
    this.#parts = parts;
    this.#untold = new PeerQueue({
      name: 'placement clears',
      env: parts.env,
      backoff: { minMs: STATEMENT_RETRY_MIN_MS, maxMs: STATEMENT_RETRY_MAX_MS },
      maxCount: PLACEMENT_CLEARS_MAX_COUNT,
      isMember: (start) => this.#starts.has(start),
      tell: (start, waiting) => this.#tell(start, waiting),
      tellAll: (start) => this.#ask(start, this.#clears[0]),
    });
  }

  /** Clears what was set before this call. Resolves when all storage nodes have answered, after DROP_WAIT_MAX_MS at the latest. */
  async clear(prefixes: readonly string[] | undefined): Promise<void> {
    const { nodeId, nextVersion } = this.#parts;
    const few = prefixes !== undefined && prefixes.length <= PLACEMENT_CLEAR_MAX_PREFIXES ? prefixes : undefined;
    const request = { placer: nodeId, voidBelow: nextVersion(), prefixes: few };
    // A node that joins meanwhile is told of the calls before, and of this one, once.
    this.membersChanged();
    this.#clears.push(request);
    if (this.#clears.length > PLACEMENT_CLEARS_MAX_COUNT) this.#joinEarliest();
    for (const start of this.#starts.keys()) this.#untold.add(start, [waitingOf(request)]);
    await this.#untold.attended(() => true, DROP_WAIT_MAX_MS);
  }

  /** Follows a change of members. */
  membersChanged(): void {
    const before = this.#starts;
    this.#starts = new Map(this.#parts.storageNodes().map((node) => [startOf(node), node]));
    this.#untold.membersChanged();
    for (const start of this.#starts.keys()) {
      if (!before.has(start) && this.#clears.length > 0) this.#untold.add(start, this.#clears.map(waitingOf));
    }
  }

  close(): void {
    this.#untold.stop();
  }

  /** Tells a storage node call after call, until it does not answer. Resolves with the calls that it has carried out. */
  async #tell(start: string, waiting: readonly Waiting<ClearRequest>[]): Promise<readonly Waiting<ClearRequest>[]> {
    for (const [i, [, request]] of waiting.entries())
      if (!(await this.#ask(start, request))) return waiting.slice(0, i);
    return waiting;
  }

  async #ask(start: string, request: ClearRequest | undefined): Promise<boolean> {
    const node = this.#starts.get(start);
    return node !== undefined && request !== undefined && this.#parts.ask(node.nodeId, request);
  }

  /** Makes one call of the two earliest: it clears all pages that are older than the later one, of all namespaces. */
  #joinEarliest(): void {
    const [, second] = this.#clears as [ClearRequest, ClearRequest];
    this.#clears.splice(0, 2, { ...second, prefixes: undefined });
  }

  /** Throws `InvariantError` unless the calls are within their limit, and nodes are told of calls that there were. */
  verify(): void {
    assertAtMost('placement clears: calls', this.#clears.length, PLACEMENT_CLEARS_MAX_COUNT);
    this.#untold.verify();
  }
}

/** The name of a start of a storage node. */
function startOf({ nodeId, incarnation }: StorageNode): string {
  return `${incarnation} ${nodeId}`;
}

function waitingOf(request: ClearRequest): Waiting<ClearRequest> {
  return [`${request.voidBelow}`, request];
}
