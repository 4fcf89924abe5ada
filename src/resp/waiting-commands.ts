import { assertEqual } from '../base/assert.js';
import {
  RESP_ARGUMENT_COST_BYTES,
  RESP_BATCH_MAX_BYTES,
  RESP_BATCH_MAX_COUNT,
  RESP_BATCH_MAX_KEYS,
} from '../base/limits.js';
import type { ServedConnection } from '../net/served/served-connection.js';
import { isChange, type RespCommand } from './commands/command.js';
import type { RespArgument } from './wire/resp-parser.js';

const SENT_BEFORE_THE_END = 'TRYAGAIN the client has ended the connection; this was not carried out';

/** A waiting command, or the error to answer instead. */
export interface WaitingCommand {
  readonly command: RespCommand | string;
  readonly isAllowed: boolean;
  readonly bytes: number;
  /** Releases the memory of large arguments. */
  readonly giveBack: () => void;
}

/**
 * The commands of one connection that were received and not executed yet, in order. The connection counts them and
 * their bytes as requests in flight.
 */
export class WaitingCommands {
  readonly #served: ServedConnection;
  #commands: WaitingCommand[] = [];
  #at = 0;

  constructor(served: ServedConnection) {
    this.#served = served;
  }

  get count(): number {
    return this.#commands.length - this.#at;
  }

  /** Bytes counted for arguments while their command waits. Large arguments are counted by their own budget instead. */
  static bytesOf(args: readonly RespArgument[], largeBytes: number): number {
    let bytes = args.length * RESP_ARGUMENT_COST_BYTES - largeBytes;
    for (const argument of args) bytes += argument?.length ?? 0;
    return bytes;
  }

  add(command: WaitingCommand): void {
    this.#commands.push(command);
    this.#served.begin(command.bytes);
  }

  /** Takes the next command, and those after it that can be executed together; empty if none waits. */
  takeBatch(): WaitingCommand[] {
    const taken: WaitingCommand[] = [];
    let keys = 0;
    let bytes = 0;
    for (let at = this.#at; at < this.#commands.length && taken.length < RESP_BATCH_MAX_COUNT; at++) {
      const next = this.#commands[at] as WaitingCommand;
      const size = sizeOf(next);
      const isFull = keys + size.keys > RESP_BATCH_MAX_KEYS || bytes + size.bytes > RESP_BATCH_MAX_BYTES;
      if (taken.length > 0 && (isFull || !isSameKind(taken[0] as WaitingCommand, next))) break;
      taken.push(next);
      keys += size.keys;
      bytes += size.bytes;
    }
    this.#at += taken.length;
    for (const { bytes: waitedBytes } of taken) this.#served.settle(waitedBytes);
    // The list is cut only occasionally, so that taking a command does not move all others.
    if (this.#at > this.#commands.length / 2) {
      this.#commands = this.#commands.slice(this.#at);
      this.#at = 0;
    }
    return taken;
  }

  /**
   * Called when the client has ended the connection. Commands that would change something are then answered with an
   * error and not executed.
   */
  refuseChanges(): void {
    this.#commands = this.#commands.map((waiting, at) => {
      if (at < this.#at || typeof waiting.command === 'string' || !isChange(waiting.command.spec)) return waiting;
      return { ...waiting, command: SENT_BEFORE_THE_END };
    });
  }

  /** Drops all commands. */
  clear(): void {
    const dropped = this.#commands.slice(this.#at);
    this.#commands = [];
    this.#at = 0;
    for (const { bytes, giveBack } of dropped) {
      giveBack();
      this.#served.settle(bytes);
    }
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    const bytes = this.#commands.slice(this.#at).reduce((sum, command) => sum + command.bytes, 0);
    assertEqual('waiting commands: bytes', this.#served.inFlightBytes, bytes);
    assertEqual('waiting commands: count', this.#served.inFlightCount, this.count);
  }
}

function sizeOf({ command }: WaitingCommand): { readonly keys: number; readonly bytes: number } {
  if (typeof command === 'string') return { keys: 0, bytes: 0 };
  let bytes = 0;
  for (const argument of command.args) bytes += argument?.length ?? 0;
  return { keys: command.args.length, bytes };
}

function isSameKind(a: WaitingCommand, b: WaitingCommand): boolean {
  if (typeof a.command === 'string' || typeof b.command === 'string') return false;
  const { batch } = a.command.spec;
  return batch !== undefined && batch === b.command.spec.batch && a.isAllowed === b.isAllowed;
}
