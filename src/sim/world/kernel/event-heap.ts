/** Runs the events of one process or host, and may hold them back. */
export interface EventOwner {
  /** Number in the event log. */
  readonly id: number;
  /** Whether the event may run now. If false, the owner keeps it for later, or it never runs. */
  mayRun(event: SimEvent): boolean;
}

/** An event at one point of virtual time. */
export interface EventPlan {
  /** Kind of the event for the log: one of a small set of constant words. */
  readonly kind: string;
  /** Owner of the event; undefined: the world itself. */
  readonly owner: EventOwner | undefined;
  /** An additional number for the log, such as the bytes of a message. */
  readonly detail?: number;
  /** Carries out the event. */
  run(): void;
}

/** An {@link EventPlan} in the queue. Events of one time run in the order in which they were scheduled. */
export interface SimEvent {
  readonly plan: EventPlan;
  atMs: number;
  sequence: number;
  /** Position in the heap; -1 if it is in none. */
  index: number;
  /** Whether the event was cancelled; its owner may still hold it, but it does not run. */
  isCancelled: boolean;
}

/** Events by time, then by sequence, in a heap with four children per node. Any event can be removed. */
export class EventHeap {
  readonly #events: SimEvent[] = [];

  get length(): number {
    return this.#events.length;
  }

  /** The next event. */
  get first(): SimEvent | undefined {
    return this.#events[0];
  }

  push(event: SimEvent): void {
    this.#events.push(event);
    this.#raise(event, this.#events.length - 1);
  }

  /** Removes and returns the next event. */
  shift(): SimEvent | undefined {
    const first = this.#events[0];
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Removes an event; does nothing if it is not there. */
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

/** The parts of a simulated process that its clock, its files and its connections use. */
export interface KernelProcess extends EventOwner {
  /** False once the process is dead, when nothing of it runs any more. */
  readonly isAlive: boolean;
  /** @internal Runs `run` in the process after a delay. Does nothing once the process is dead. */
  schedule(kind: string, run: () => void, delayMs?: number): void;
  /**
   * @internal Runs `fn` in the process: at once as a part of the kernel's current event, or as soon as the process can
   * run.
   */
  enter(kind: string, fn: () => void): void;
}
