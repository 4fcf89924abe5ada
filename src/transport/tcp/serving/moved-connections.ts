import type { Clock } from '../../../base/environment/clock.js';
import type { Connection } from '../../../base/environment/network.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import { closeReceived, duplicateDescriptor } from '../../../native/unix-sockets.js';

/** The load of a thread that takes no connections, above every number of connections. */
const NOT_SERVING = 2 ** 30;
/** What has become of the descriptor of a connection that was moved. */
const [MOVING, TAKEN, LOST] = [0, 1, 2] as const;

/** Connections of each serving thread, in shared memory. The first thread accepts and gives others their share. */
export class ServingLoads {
  readonly memory: SharedArrayBuffer;
  readonly #loads: Int32Array;

  /** Uses existing `memory`, or that of `threads` threads that do not serve yet. */
  constructor(memory: SharedArrayBuffer | number) {
    this.memory = typeof memory === 'number' ? new SharedArrayBuffer(memory * 4) : memory;
    this.#loads = new Int32Array(this.memory);
    if (typeof memory === 'number') this.#loads.fill(NOT_SERVING);
  }

  /** Called when a thread begins or ends to serve; then it has no connections. */
  set(thread: number, isServing: boolean): void {
    Atomics.store(this.#loads, thread, isServing ? 0 : NOT_SERVING);
  }

  add(thread: number, connections: number): void {
    Atomics.add(this.#loads, thread, connections);
  }

  /** The thread with the fewest connections. */
  least(): number {
    let least = 0;
    for (let i = 1; i < this.#loads.length; i++) {
      if (Atomics.load(this.#loads, i) < Atomics.load(this.#loads, least)) least = i;
    }
    return least;
  }
}

/** What serving threads of one transport post to each other; every thread receives everything. */
type Moved =
  | { readonly type: 'connection'; readonly to: number; readonly descriptor: number; readonly state: Int32Array }
  | { readonly type: 'proved'; readonly address: string };

interface MovedConnectionsParts {
  /** Number of this thread; 0 accepts. */
  readonly index: number;
  readonly loads: ServingLoads;
  readonly channel: MessageEnd;
  readonly clock: Clock;
  /** Time after which a thread that has not taken a connection will not take it any more. */
  readonly timeoutMs: number;
  /** Takes over the descriptor of an accepted connection. */
  onConnection(descriptor: number): void;
  /** Called on the accepting thread when the peer of a moved connection has authenticated itself. */
  onProved(address: string): void;
}

/**
 * Moves accepted connections from the thread that accepts to the others, so that each has an equal number. A connection
 * moves as a second descriptor of its socket before anything has been read from it. The descriptor is closed by the
 * thread that takes it, or by the accepting one if none does.
 */
export class MovedConnections {
  readonly #parts: MovedConnectionsParts;
  /** Each closes a descriptor that no thread has taken. */
  readonly #takeBacks = new Set<() => void>();

  constructor(parts: MovedConnectionsParts) {
    this.#parts = parts;
    parts.channel.onMessage((message) => this.#received(message as Moved));
  }

  /** Decides about a connection that was accepted, or adopted from another thread; returns false if it was moved. */
  keeps(connection: Connection, isAdopted: boolean): boolean {
    const { index, loads } = this.#parts;
    if (!isAdopted) {
      const to = loads.least();
      if (to !== index && this.#move(connection, to)) return false;
      loads.add(index, 1);
    }
    connection.once('close', () => loads.add(index, -1));
    return true;
  }

  /** Called for a connection of this thread whose peer has authenticated itself. */
  proved(address: string): void {
    if (this.#parts.index === 0) this.#parts.onProved(address);
    else this.#parts.channel.post({ type: 'proved', address } satisfies Moved);
  }

  /** Ends the moves in both directions, and closes connections that no other thread has taken. */
  close(): void {
    for (const takeBack of this.#takeBacks) takeBack();
    this.#parts.channel.close();
  }

  #move(connection: Connection, to: number): boolean {
    const { loads, channel, clock, timeoutMs } = this.#parts;
    const descriptor = duplicateDescriptor(connection);
    if (descriptor === undefined) return false;
    loads.add(to, 1);
    const state = new Int32Array(new SharedArrayBuffer(4));
    channel.post({ type: 'connection', to, descriptor, state } satisfies Moved);
    connection.destroy();
    const takeBack = (): void => {
      cancel();
      this.#takeBacks.delete(takeBack);
      if (Atomics.compareExchange(state, 0, MOVING, LOST) === MOVING) closeReceived(descriptor);
    };
    const cancel = clock.after(timeoutMs, takeBack);
    this.#takeBacks.add(takeBack);
    return true;
  }

  #received(message: Moved): void {
    const { index, loads, onConnection, onProved } = this.#parts;
    if (message.type === 'proved') {
      if (index === 0) onProved(message.address);
      return;
    }
    const { to, descriptor, state } = message;
    if (to !== index) return;
    try {
      if (Atomics.compareExchange(state, 0, MOVING, TAKEN) === MOVING) onConnection(descriptor);
      else loads.add(index, -1);
    } catch {
      // The peer has gone in the meantime.
      loads.add(index, -1);
      closeReceived(descriptor);
    }
  }
}
