import { type Distances, OTHER_ZONE, SAME_HOST, SAME_ZONE } from '../../net/distance.js';
import type { NodeInfo } from '../../types.js';

/** The racks or zones of the members, and the distances between members. */
export class MemberZones {
  #members: ReadonlyMap<string, NodeInfo>;
  /** The members that state a zone. */
  readonly #zones = new Map<string, string>();
  /** Members whose version does not support zones. */
  readonly #unaware = new Set<string>();
  /** Cached distances from members, since the last change of members. */
  readonly #distances = new Map<string, Distances>();

  constructor(self: NodeInfo) {
    this.#members = new Map([[self.nodeId, self]]);
    this.#note(self.nodeId);
  }

  /** Replaces the members; only those in `changed` may differ from before. */
  changed(members: ReadonlyMap<string, NodeInfo>, changed: readonly string[]): void {
    this.#members = members;
    this.#distances.clear();
    for (const nodeId of changed) this.#note(nodeId);
  }

  /**
   * The zones by which replicas are spread; undefined if they are not spread. All nodes must choose the same owners,
   * and nodes of earlier versions ignore zones: while there is one, zones do not count.
   */
  forRing(): ReadonlyMap<string, string> | undefined {
    return this.#unaware.size === 0 && this.#zones.size > 0 ? this.#zones : undefined;
  }

  /** The distances from a member. */
  distancesFrom(nodeId: string): Distances {
    const zone = this.#zones.get(nodeId);
    if (zone === undefined) return undefined;
    const known = this.#distances.get(nodeId);
    if (known !== undefined) return known;
    const distances = this.#distancesFrom(nodeId, zone);
    this.#distances.set(nodeId, distances);
    return distances;
  }

  #distancesFrom(nodeId: string, zone: string): Distances {
    const members = this.#members;
    const host = members.get(nodeId)?.controlHost;
    return (otherId) => {
      const other = members.get(otherId);
      if (other?.controlHost === host) return SAME_HOST;
      return other?.zone === zone ? SAME_ZONE : OTHER_ZONE;
    };
  }

  #note(nodeId: string): void {
    const member = this.#members.get(nodeId);
    if (member === undefined || member.zone !== undefined) this.#unaware.delete(nodeId);
    else this.#unaware.add(nodeId);
    if (member?.zone) this.#zones.set(nodeId, member.zone);
    else this.#zones.delete(nodeId);
  }
}
