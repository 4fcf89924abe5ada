import type { Endpoint } from '../../base/environment/network.js';
import type { NodeInfo } from '../../types.js';
import type { MemberChange } from '../upkeep/member-log.js';

/** The live nodes, this one included, as the discovery masters have last listed them. */
export class Members {
  #byId: ReadonlyMap<string, NodeInfo>;

  constructor(self: NodeInfo) {
    this.#byId = new Map([[self.nodeId, self]]);
  }

  /** The members by id. Each change of members replaces the map. */
  get byId(): ReadonlyMap<string, NodeInfo> {
    return this.#byId;
  }

  /** Where a node's control plane listens; undefined when the node is not a member. */
  endpointOf(nodeId: string): Endpoint | undefined {
    const node = this.#byId.get(nodeId);
    return node === undefined ? undefined : { host: node.controlHost, port: node.controlPort };
  }

  /** Whether this start of a node is a member. */
  isLive(nodeId: string, incarnation: number): boolean {
    return this.#byId.get(nodeId)?.incarnation === incarnation;
  }

  /** Replaces the members; `changed` has the ids whose records differ. */
  change(members: ReadonlyMap<string, NodeInfo>, changed: readonly string[]): MemberChange {
    const before = this.#byId;
    this.#byId = members;
    return { before, after: members, changed };
  }
}
