import net from 'node:net';

/** What the proxy does to the bytes of every connection. */
export type ProxyMode =
  | { readonly kind: 'pass' }
  /** Each byte arrives so much later. */
  | { readonly kind: 'delay'; readonly delayMs: number }
  /** Each direction of a connection carries so much. */
  | { readonly kind: 'drip'; readonly bytesPerS: number }
  /** Connections stay as they are, new ones are accepted: nothing goes through, nothing is said. */
  | { readonly kind: 'halfopen' }
  /** All connections are cut, new ones after so many bytes. */
  | { readonly kind: 'reset'; readonly afterBytes: number };

const DRIP_TURN_MS = 50;
/** Bytes that one direction of a connection holds back, before it reads no more. */
const HELD_MAX_BYTES = 1 << 20;

/** Forwards connections to one port byte by byte, well or badly. */
export class TcpProxy {
  readonly #target: { readonly host: string; readonly port: number };
  readonly #pairs = new Set<Pair>();
  readonly #server: net.Server;
  #mode: ProxyMode = { kind: 'pass' };

  constructor(target: { readonly host: string; readonly port: number }) {
    this.#target = target;
    this.#server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
  }

  /** Resolves with the port. */
  listen(port: number, host = '0.0.0.0'): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => resolve((this.#server.address() as net.AddressInfo).port));
    });
  }

  /** From now on, also for connections that there are; what a half-open time has held back is then carried on. */
  setMode(mode: ProxyMode): void {
    this.#mode = mode;
    for (const pair of this.#pairs) {
      if (mode.kind === 'reset') pair.reset();
      else pair.setMode(mode);
    }
  }

  async close(): Promise<void> {
    for (const pair of this.#pairs) pair.reset();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(near: net.Socket): void {
    const far = net.connect({ ...this.#target, allowHalfOpen: true, noDelay: true });
    const pair = new Pair(near, far, this.#mode, () => this.#pairs.delete(pair));
    this.#pairs.add(pair);
  }
}

/** The two sockets of a connection. */
class Pair {
  readonly #directions: readonly Direction[];
  readonly #onEnd: () => void;
  #open = 2;

  constructor(near: net.Socket, far: net.Socket, mode: ProxyMode, onEnd: () => void) {
    this.#onEnd = onEnd;
    const reset = () => this.reset();
    this.#directions = [new Direction(near, far, mode, reset), new Direction(far, near, mode, reset)];
    for (const socket of [near, far]) {
      // Whoever refuses or cuts one side cuts the other.
      socket.on('error', reset);
      socket.on('close', () => {
        if (--this.#open === 0) this.#onEnd();
      });
    }
  }

  setMode(mode: ProxyMode): void {
    for (const direction of this.#directions) direction.setMode(mode);
  }

  reset(): void {
    for (const direction of this.#directions) direction.end();
  }
}

interface Held {
  readonly bytes: Buffer;
  readonly dueMs: number;
}

/** One direction: what has been read waits until the mode lets it go. */
class Direction {
  readonly #from: net.Socket;
  readonly #to: net.Socket;
  readonly #reset: () => void;
  #mode: ProxyMode;
  #held: Held[] = [];
  #heldBytes = 0;
  #carriedBytes = 0;
  #hasEnded = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(from: net.Socket, to: net.Socket, mode: ProxyMode, reset: () => void) {
    this.#from = from;
    this.#to = to;
    this.#mode = mode;
    this.#reset = reset;
    from.on('data', (bytes) => this.#take(bytes));
    from.on('end', () => {
      this.#hasEnded = true;
      this.#carry();
    });
    to.on('drain', () => this.#carry());
  }

  setMode(mode: ProxyMode): void {
    this.#mode = mode;
    this.#carry();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#held = [];
    if (!this.#from.destroyed) this.#from.resetAndDestroy();
  }

  #take(bytes: Buffer): void {
    const delayMs = this.#mode.kind === 'delay' ? this.#mode.delayMs : 0;
    this.#held.push({ bytes, dueMs: performance.now() + delayMs });
    this.#heldBytes += bytes.length;
    if (this.#heldBytes > HELD_MAX_BYTES) this.#from.pause();
    this.#carry();
  }

  /** Writes what may go now, and comes back for the rest. */
  #carry(): void {
    clearTimeout(this.#timer);
    const mode = this.#mode;
    if (mode.kind === 'halfopen' || this.#to.destroyed) return;
    let allowance = mode.kind === 'drip' ? Math.max(1, (mode.bytesPerS * DRIP_TURN_MS) / 1000) : Infinity;
    if (mode.kind === 'reset') allowance = mode.afterBytes - this.#carriedBytes;
    for (let first = this.#held[0]; first !== undefined && allowance >= 1; first = this.#held[0]) {
      if (mode.kind === 'delay' && first.dueMs > performance.now()) break;
      if (this.#to.writableNeedDrain) return;
      const bytes = first.bytes.subarray(0, Math.floor(allowance));
      const rest = first.bytes.subarray(bytes.length);
      if (rest.length > 0) this.#held[0] = { bytes: rest, dueMs: first.dueMs };
      else this.#held.shift();
      allowance -= bytes.length;
      this.#heldBytes -= bytes.length;
      this.#carriedBytes += bytes.length;
      this.#to.write(bytes);
    }
    if (this.#heldBytes <= HELD_MAX_BYTES) this.#from.resume();
    if (mode.kind === 'reset' && this.#carriedBytes >= mode.afterBytes) this.#reset();
    else if (this.#held.length > 0) this.#comeBack(mode);
    else if (this.#hasEnded) this.#to.end();
  }

  #comeBack(mode: ProxyMode): void {
    const first = this.#held[0] as Held;
    const waitMs = mode.kind === 'delay' ? Math.max(1, first.dueMs - performance.now()) : DRIP_TURN_MS;
    this.#timer = setTimeout(() => this.#carry(), waitMs);
  }
}
