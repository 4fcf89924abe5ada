import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import { formatEndpoint } from '../../base/environment/network.js';
import { MEMBER_EVENTS_MAX_COUNT } from '../../base/limits.js';
import type { DepartedNode, MemberEvent } from '../../metrics/node-report.js';
import type { NodeInfo } from '../../types.js';
import type { MemberChange } from '../upkeep/member-log.js';

/** Times for which a lost node, and one that has left, is remembered. */
const LOST_KEPT_MS = 24 * 3_600_000;
const LEFT_KEPT_MS = 3_600_000;

interface Remembered {
  readonly node: DepartedNode;
  /** Monotonic time until which the node is remembered. */
  readonly untilMs: number;
}

/** Remembers which nodes came and went, for operators who look later. */
export class MemberEvents {
  readonly #clock: Clock;
  /** Nodes that are gone and have not come back, in the order in which they went. */
  readonly #departed = new Map<string, Remembered>();
  readonly #events: MemberEvent[] = [];
  #hasList = false;

  constructor(clock: Clock, metrics: MetricsSink) {
    this.#clock = clock;
    const lost = () => this.departed().filter(({ how }) => how === 'lost').length;
    metrics.setGaugeProvider('meshcache_lost_members', lost);
  }

  /** Records a change of members. `hasLeft`: whether a node that is no longer a member has announced that it leaves. */
  note({ before, after, changed }: MemberChange, hasLeft: (nodeId: string) => boolean): void {
    const isFirst = !this.#hasList;
    this.#hasList = true;
    for (const nodeId of changed) {
      const [was, is] = [before.get(nodeId), after.get(nodeId)];
      if (was?.incarnation === is?.incarnation) continue;
      if (is === undefined) this.#gone(was as NodeInfo, hasLeft(nodeId) ? 'left' : 'lost');
      else {
        this.#departed.delete(nodeId);
        // The first list contains nodes that were there before this one.
        if (!isFirst) this.#add(is, was === undefined ? 'joined' : 'restarted');
      }
    }
  }

  /** Nodes that are gone, oldest first. */
  departed(): DepartedNode[] {
    const nowMs = this.#clock.nowMs();
    for (const [nodeId, { untilMs }] of this.#departed) if (nowMs >= untilMs) this.#departed.delete(nodeId);
    return [...this.#departed.values()].map(({ node }) => node);
  }

  /** The last changes, oldest first. */
  list(): readonly MemberEvent[] {
    return [...this.#events];
  }

  #gone(info: NodeInfo, how: DepartedNode['how']): void {
    const event = this.#add(info, how);
    const { node_id, incarnation, time_ms } = event;
    const control_endpoint = formatEndpoint({ host: info.controlHost, port: info.controlPort });
    const untilMs = this.#clock.nowMs() + (how === 'lost' ? LOST_KEPT_MS : LEFT_KEPT_MS);
    this.#departed.delete(node_id);
    this.#departed.set(node_id, { node: { node_id, incarnation, control_endpoint, how, time_ms }, untilMs });
    if (this.#departed.size > MEMBER_EVENTS_MAX_COUNT) this.#forgetOne();
  }

  /**
   * Forgets the node that has been gone longest; nodes that left are forgotten first, because nobody looks for them.
   */
  #forgetOne(): void {
    const [oldest] = this.#departed.keys();
    const left = [...this.#departed.values()].find(({ node }) => node.how === 'left');
    const nodeId = left?.node.node_id ?? oldest;
    if (nodeId !== undefined) this.#departed.delete(nodeId);
  }

  #add({ nodeId, incarnation }: NodeInfo, change: MemberEvent['change']): MemberEvent {
    const event = { node_id: nodeId, incarnation, change, time_ms: this.#clock.wallMs() };
    this.#events.push(event);
    if (this.#events.length > MEMBER_EVENTS_MAX_COUNT) this.#events.shift();
    return event;
  }
}
