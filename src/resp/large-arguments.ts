import type { ReceivingMemory } from '../net/receiving-memory.js';
import type { ValueMemory } from './values/value-memory.js';
import type { RespArgument } from './wire/resp-parser.js';

/**
 * The memory of the command that a connection is receiving: its large arguments, and its small ones if there are many.
 */
export class LargeArguments {
  readonly #holding: ReceivingMemory;
  readonly #memory: ValueMemory;
  #received: Buffer[] = [];
  #count = 0;

  /** `holding` counts the memory against the budget that all connections share. */
  constructor(holding: ReceivingMemory, memory: ValueMemory) {
    this.#holding = holding;
    this.#memory = memory;
  }

  /** Number of large arguments that have begun. */
  get count(): number {
    return this.#count;
  }

  /** Whether receiving waits for memory. */
  get isWaiting(): boolean {
    return this.#holding.isWaiting;
  }

  get isEmpty(): boolean {
    return !this.#holding.isHeld && this.#received.length === 0;
  }

  begin(): void {
    this.#holding.begin();
    this.#count++;
  }

  /**
   * Takes memory for a part that has arrived. Only the first large argument of a command waits for memory; later ones
   * are dropped, because they might wait for more than there will ever be.
   */
  reserve(bytes: number): 'now' | 'later' | 'drop' {
    if (this.#holding.take(bytes)) return 'now';
    if (this.#count <= 1) return 'later';
    this.#holding.whole();
    return 'drop';
  }

  /** Takes memory for small arguments that have arrived. */
  reserveWords(bytes: number): 'now' | 'later' {
    return this.#holding.take(bytes) ? 'now' : 'later';
  }

  /** Moves the argument `body` to a buffer of `bytes` bytes; returns null if the system has no more memory. */
  grow(body: Buffer, bytes: number): Buffer | null {
    const memory = this.#memory;
    const grown = memory.take(bytes);
    if (grown === undefined) return null;
    grown.set(body);
    const at = this.#received.indexOf(body);
    if (at < 0) {
      this.#received.push(grown);
    } else {
      this.#received[at] = grown;
      memory.giveBack(body);
    }
    return grown;
  }

  /** Total length of those `args` whose memory the budget counts. */
  bytesOf(args: readonly RespArgument[]): number {
    if (this.#received.length === 0) return 0;
    const large = new Set(this.#received.map(({ buffer }) => buffer));
    return args.reduce((sum, arg) => sum + (arg !== null && large.has(arg.buffer) ? arg.length : 0), 0);
  }

  /** Ends receiving the command. Returns a function that releases the memory. */
  take(): () => void {
    const memory = this.#memory;
    const giveBack = this.#holding.handOver();
    const taken = this.#received;
    this.#received = [];
    this.#count = 0;
    return () => {
      for (const argument of taken.splice(0)) memory.giveBack(argument);
      giveBack?.();
    };
  }
}
