/** What runs the events of one process or host, and may hold them back. */
export interface EventOwner {
  /** Its name in the event log. */
  readonly id: number;
  /** Whether the event may run now. False: the owner keeps it for later, or it never runs. */
  mayRun(event: SimEvent): boolean;
}

/** What happens at one point of virtual time. */
export interface EventPlan {
  /** What kind of event it is: a small set of constant words, for the log. */
  readonly kind: string;
  /** Undefined: the world itself. */
  readonly owner: EventOwner | undefined;
  /** A number that says more, for the log: bytes of a message, say. */
  readonly detail?: number;
  /** What happens then. */
  run(): void;
}

/** An {@link EventPlan} in the queue. Events of one time run in the order in which they were scheduled. */
export interface SimEvent {
  readonly plan: EventPlan;
  atMs: number;
  sequence: number;
  /** Its place in the heap; -1: it is in none. */
  index: number;
  /** Its owner may have it, held back; it does not run any more. */
  isCancelled: boolean;
}

/** Events by time, then by sequence; any of them can be taken out. A heap of four children a node. */
export class EventHeap {
  readonly #events: SimEvent[] = [];

  get length(): number {
    return this.#events.length;
  }

  /** The next one. */
  get first(): SimEvent | undefined {
    return this.#events[0];
  }

  push(event: SimEvent): void {
    this.#events.push(event);
    this.#raise(event, this.#events.length - 1);
  }

  /** Takes out the next one. */
  shift(): SimEvent | undefined {
    const first = this.#events[0];
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Harmless for an event that is not there. */
  remove(event: SimEvent): void {
    const { index } = event;
    if (index < 0) return;
    const last = this.#events.pop() as SimEvent;
    event.index = -1;
    if (last === event) return;
    if (index > 0 && isBefore(last, this.#events[(index - 1) >> 2] as SimEvent)) this.#raise(last, index);
    else this.#sink(last, index);
  }

  #raise(event: SimEvent, from: number): void {
    const events = this.#events;
    let at = from;
    while (at > 0) {
      const parentIndex = (at - 1) >> 2;
      const parent = events[parentIndex] as SimEvent;
      if (!isBefore(event, parent)) break;
      events[at] = parent;
      parent.index = at;
      at = parentIndex;
    }
    events[at] = event;
    event.index = at;
  }

  #sink(event: SimEvent, from: number): void {
    const events = this.#events;
    const { length } = events;
    let at = from;
    for (;;) {
      const firstChild = 4 * at + 1;
      if (firstChild >= length) break;
      let least = firstChild;
      const end = Math.min(firstChild + 4, length);
      for (let child = firstChild + 1; child < end; child++) {
        if (isBefore(events[child] as SimEvent, events[least] as SimEvent)) least = child;
      }
      const child = events[least] as SimEvent;
      if (!isBefore(child, event)) break;
      events[at] = child;
      child.index = at;
      at = least;
    }
    events[at] = event;
    event.index = at;
  }
}

function isBefore(a: SimEvent, b: SimEvent): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.sequence < b.sequence);
}
