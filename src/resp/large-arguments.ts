import type { ByteBudget, ByteHolding } from '../base/concurrency/byte-budget.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { ArgumentMemory } from './argument-memory.js';
import type { RespArgument } from './wire/resp-parser.js';

export interface LargeArgumentsParts {
  /** Memory for arguments that are being received, shared by all connections. */
  readonly budget: ByteBudget;
  readonly memory: ArgumentMemory;
  readonly sharer: Sharer;
  /** Called when there is memory for which {@link LargeArguments.reserve} has answered `later`. */
  readonly onRoom: () => void;
}

/**
 * The memory of the command that a connection is receiving: that of its large arguments, and of small ones that are
 * many.
 */
export class LargeArguments {
  readonly #parts: LargeArgumentsParts;
  /** Undefined: the command needs none so far. */
  #holding: ByteHolding | undefined;
  #received: Buffer[] = [];
  #count = 0;
  #isWaiting = false;

  constructor(parts: LargeArgumentsParts) {
    this.#parts = parts;
  }

  /** Number of those that have begun. */
  get count(): number {
    return this.#count;
  }

  /** Whether the reception waits for memory. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  get isEmpty(): boolean {
    return this.#holding === undefined && this.#received.length === 0;
  }

  begin(): void {
    this.#holding ??= this.#parts.budget.hold(this.#parts.sharer);
    this.#count++;
  }

  /**
   * Takes memory for a part that has come. Only the first one of a command waits for it: of others, more may be wanted
   * than there ever is.
   */
  reserve(bytes: number): 'now' | 'later' | 'drop' {
    const answer = this.#take(bytes);
    if (answer === 'now' || this.#count <= 1) return answer;
    this.#holding?.whole();
    this.#isWaiting = false;
    return 'drop';
  }

  /** Takes memory for small arguments that have come. */
  reserveWords(bytes: number): 'now' | 'later' {
    this.#holding ??= this.#parts.budget.hold(this.#parts.sharer);
    return this.#take(bytes);
  }

  #take(bytes: number): 'now' | 'later' {
    const holding = this.#holding as ByteHolding;
    let isWithin = true;
    let isGranted = false;
    holding.take(bytes, () => {
      isGranted = true;
      if (isWithin || this.#holding !== holding) return;
      this.#isWaiting = false;
      this.#parts.onRoom();
    });
    isWithin = false;
    if (isGranted) return 'now';
    this.#isWaiting = true;
    return 'later';
  }

  /** The argument `body` in a buffer of so many bytes; null: the system has no more memory. */
  grow(body: Buffer, bytes: number): Buffer | null {
    const { memory } = this.#parts;
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

  /** Bytes of those among `args` whose memory is counted by the budget. */
  bytesOf(args: readonly RespArgument[]): number {
    if (this.#received.length === 0) return 0;
    const large = new Set(this.#received.map(({ buffer }) => buffer));
    return args.reduce((sum, arg) => sum + (arg !== null && large.has(arg.buffer) ? arg.length : 0), 0);
  }

  /** Ends the reception of the command. Returns what gives back the memory. */
  take(): () => void {
    const { memory } = this.#parts;
    const [holding, taken] = [this.#holding, this.#received];
    holding?.whole();
    this.#holding = undefined;
    this.#received = [];
    this.#count = 0;
    this.#isWaiting = false;
    return () => {
      for (const argument of taken.splice(0)) memory.giveBack(argument);
      holding?.giveBack();
    };
  }
}
