import { assertAtMost } from '../../base/assert.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';
import type { MemberChange } from './member-log.js';

/**
 * Notices nodes that have rejoined as the start of before. This node's shard has dropped what such a node had stated, and the node may not know that it
 * was ever gone: for a while, this node heard only from a master that the other one did not reach. Or it heard of a former start of the other node once
 * more, from a master that did not know the present one. A node that has started anew after its clock went back is noticed, too: until its former start
 * had gone here, its statements were refused as older than that one's.
 */
export class LostStatements {
  readonly #askToRestate: (nodeId: string) => void;
  /** Node id -> its start that was the member before the present one, or before it went: its statements were dropped. The earliest change comes first. */
  readonly #dropped = new Map<string, number>();

  /** `askToRestate`: asks a node to state all its pages again. */
  constructor(askToRestate: (nodeId: string) => void) {
    this.#askToRestate = askToRestate;
  }

  membersChanged({ before, after, changed }: MemberChange): void {
    for (const nodeId of changed) {
      const incarnation = after.get(nodeId)?.incarnation;
      const lost = before.get(nodeId)?.incarnation;
      if (incarnation !== undefined && incarnation === lost) continue;
      const known = Math.max(lost ?? 0, this.#dropped.get(nodeId) ?? 0);
      if (incarnation !== undefined && incarnation <= known) this.#askToRestate(nodeId);
      this.#dropped.delete(nodeId);
      if (lost !== undefined) this.#dropped.set(nodeId, lost);
    }
    for (const nodeId of this.#dropped.keys()) {
      if (this.#dropped.size <= MEMBERS_MAX_COUNT) break;
      this.#dropped.delete(nodeId);
    }
  }

  /** Throws `InvariantError` unless the remembered nodes are within their limit. */
  verify(): void {
    assertAtMost('lost statements: nodes', this.#dropped.size, MEMBERS_MAX_COUNT);
  }
}
