import type { MemberEvent, NodeEvent } from '../../metrics/node-report.js';
import { amount, type Loose } from './counts.js';

/** Events of all nodes that are kept and shown. */
export const EVENTS_MAX_COUNT = 200;
/** Milliseconds within which equal messages count as one event. */
const SAME_EVENT_MS = 30_000;
/** Log messages about members, which every node writes. Member events report the same only once. */
const MEMBER_LINE = /^nodes? (joined|restarted|left|lost\b.*)$/;

type EventLevel = 'info' | 'warn' | 'error';

export interface LoggedEvent {
  /** Nodes that report the event, or the node that it is about. */
  readonly nodeIds: readonly string[];
  readonly timeMs: number;
  readonly level: EventLevel;
  /** The message, and its fields as `name=value`. */
  readonly text: string;
  /** How often the first of the nodes reports it in quick succession. */
  readonly times: number;
  /** Whether a node came or went. */
  readonly isOfMember: boolean;
}

/**
 * Events of all nodes, including nodes that are gone, ordered by the nodes' clocks. An event that several nodes report
 * is listed once.
 */
export class EventLog {
  #events: LoggedEvent[] = [];
  readonly #seen = new Map<string, { incarnation: number; lastId: number }>();
  readonly #ofMembers = new Map<string, LoggedEvent>();

  /** Adds the new events of a node; true if there were any. */
  add(nodeId: string, incarnation: number, events: readonly Loose<NodeEvent>[], hasMemberEvents = false): boolean {
    const known = this.#seen.get(nodeId);
    const lastId = known?.incarnation === incarnation ? known.lastId : 0;
    const fresh = events.filter((event) => amount(event.id) > lastId);
    if (fresh.length === 0) return false;
    this.#seen.set(nodeId, { incarnation, lastId: Math.max(...fresh.map(({ id }) => amount(id))) });
    for (const event of fresh) {
      if (hasMemberEvents && MEMBER_LINE.test(String(event.message))) continue;
      this.#merge({
        nodeIds: [nodeId],
        timeMs: amount(event.time_ms),
        level: levelOf(event.level),
        text: textOf(event),
        times: 1,
        isOfMember: false,
      });
    }
    // The sort is stable, so events of one node in the same millisecond keep their order.
    this.#events = this.#events.sort((a, b) => a.timeMs - b.timeMs).slice(-EVENTS_MAX_COUNT);
    return true;
  }

  /**
   * Adds events about members; true if any is new. `ttlS` is the number of seconds without a heartbeat after which a
   * node is lost.
   */
  addMemberEvents(events: readonly Loose<MemberEvent>[], ttlS: number | undefined): boolean {
    let isNew = false;
    for (const event of events) {
      const nodeId = String(event.node_id);
      const change = String(event.change);
      const key = JSON.stringify([nodeId, amount(event.incarnation), change === 'left' || change === 'lost']);
      const known = this.#ofMembers.get(key);
      const [level, text] = wordsOf(change, ttlS);
      if (known?.text === text && known.timeMs === amount(event.time_ms)) continue;
      isNew = true;
      this.#ofMembers.set(key, {
        nodeIds: [nodeId],
        timeMs: amount(event.time_ms),
        level,
        text,
        times: 1,
        isOfMember: true,
      });
    }
    for (const key of [...this.#ofMembers.keys()].slice(0, Math.max(0, this.#ofMembers.size - EVENTS_MAX_COUNT))) {
      this.#ofMembers.delete(key);
    }
    return isNew;
  }

  /** Events that one node reports or that are about it, or all events if `nodeId` is null; newest first. */
  newest(nodeId: string | null): LoggedEvent[] {
    return [...this.#events, ...this.#ofMembers.values()]
      .filter(({ nodeIds }) => nodeId === null || nodeIds.includes(nodeId))
      .sort((a, b) => a.timeMs - b.timeMs)
      .slice(-EVENTS_MAX_COUNT)
      .reverse();
  }

  /** Adds an event, or merges it with an equal event of another node or of a moment ago. */
  #merge(event: LoggedEvent): void {
    const isSame = ({ text, level, timeMs }: LoggedEvent): boolean =>
      text === event.text && level === event.level && Math.abs(timeMs - event.timeMs) <= SAME_EVENT_MS;
    const index = this.#events.findIndex(isSame);
    const known = this.#events[index];
    if (known === undefined) {
      this.#events.push(event);
      return;
    }
    const [nodeId] = event.nodeIds as [string];
    this.#events[index] = {
      ...known,
      timeMs: Math.min(known.timeMs, event.timeMs),
      nodeIds: known.nodeIds.includes(nodeId) ? known.nodeIds : [...known.nodeIds, nodeId],
      times: known.times + Number(known.nodeIds[0] === nodeId),
    };
  }
}

function wordsOf(change: string, ttlS: number | undefined): readonly [EventLevel, string] {
  switch (change) {
    case 'lost':
      return ['error', `lost: no heartbeat${ttlS === undefined ? '' : ` for ${ttlS} s`}`];
    case 'left':
      return ['info', 'left'];
    case 'restarted':
      return ['warn', 'restarted: came back as a new start before it was missed'];
    default:
      return ['info', change];
  }
}

function levelOf(level: unknown): EventLevel {
  return level === 'warn' || level === 'error' ? level : 'info';
}

function textOf({ message, fields }: Loose<NodeEvent>): string {
  const pairs = Object.entries(fields ?? {}).map(([name, value]) => `${name}=${String(value)}`);
  return [String(message ?? ''), ...pairs].join(' ');
}
