import type { NodeEvent } from '../../metrics/node-report.js';
import { amount, type Loose } from './loose.js';

/** Events of all nodes that are kept and shown. */
export const EVENTS_MAX_COUNT = 200;

export interface LoggedEvent {
  readonly nodeId: string;
  readonly timeMs: number;
  readonly level: 'info' | 'warn' | 'error';
  /** The message, and its fields as `name=value`. */
  readonly text: string;
}

/** Events of all nodes, also of nodes that have left, ordered by the nodes' clocks. */
export class EventLog {
  #events: LoggedEvent[] = [];
  readonly #seen = new Map<string, { incarnation: number; lastId: number }>();

  /** Adds the new events of a node; true if there were any. */
  add(nodeId: string, incarnation: number, events: readonly Loose<NodeEvent>[]): boolean {
    const known = this.#seen.get(nodeId);
    const lastId = known?.incarnation === incarnation ? known.lastId : 0;
    const fresh = events.filter((event) => amount(event.id) > lastId);
    if (fresh.length === 0) return false;
    this.#seen.set(nodeId, { incarnation, lastId: Math.max(...fresh.map(({ id }) => amount(id))) });
    const logged = fresh.map((event): LoggedEvent => {
      return { nodeId, timeMs: amount(event.time_ms), level: levelOf(event.level), text: textOf(event) };
    });
    // The sort is stable: events of one node and millisecond keep their order.
    this.#events = [...this.#events, ...logged].sort((a, b) => a.timeMs - b.timeMs).slice(-EVENTS_MAX_COUNT);
    return true;
  }

  /** Events of one node, or of all; newest first. */
  newest(nodeId: string | null): LoggedEvent[] {
    return this.#events.filter((event) => nodeId === null || event.nodeId === nodeId).reverse();
  }
}

function levelOf(level: unknown): LoggedEvent['level'] {
  return level === 'warn' || level === 'error' ? level : 'info';
}

function textOf({ message, fields }: Loose<NodeEvent>): string {
  const pairs = Object.entries(fields ?? {}).map(([name, value]) => `${name}=${String(value)}`);
  return [String(message ?? ''), ...pairs].join(' ');
}
