import { ClosedError } from '../../base/errors.js';
import type { Right } from '../../net/users.js';
import type { CallTime } from '../../store/call/call-options.js';
import type { RespAccess } from '../access/resp-access.js';
import type { RespPages } from '../values/resp-pages.js';
import type { Protocol } from '../wire/protocol.js';
import type { Answer } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';

/** How a command ended; a label of `meshcache_resp_commands_total`. `nil`: a value did not exist, or was not set. */
export type CommandResult = 'ok' | 'nil' | 'error';

/** A received command. Its name is not among the arguments. */
export interface RespCommand {
  readonly spec: CommandSpec;
  readonly args: readonly RespArgument[];
  /** Earliest time at which it can have been sent, by the monotonic clock. */
  readonly sentAfterMs: number;
}

/** The time limit and the date of a command. */
export interface CommandTime extends CallTime {
  /** The date at `askedMs`, in milliseconds since 1970. */
  readonly dateMs: number;
}

/** The view that a command has of its connection and of the node. */
export interface RespSession {
  readonly id: number;
  /** Name that the client gave to its connection. */
  name: Buffer;
  protocol: Protocol;
  /** The user of the connection, and its rights. */
  readonly access: RespAccess;
  /** The pages that the client's commands access. Throws {@link CommandError} if there are none. */
  readonly pages: RespPages;
  readonly facts: RespFacts;
  /** Aborted when the connection is closed. */
  readonly signal: AbortSignal;
  /** Lets other clients take their turn between two steps of a long command; undefined if none needs it now. */
  readonly goOn: () => Promise<void> | undefined;
  /**
   * Returns the time of commands that are executed together; `first` is the first of them. It is over when the client
   * has ended the connection.
   */
  timeOf(first: RespCommand): CommandTime;
  answer(value: Answer): void;
  /** Adds raw bytes to the answers. */
  addBytes(bytes: Uint8Array): void;
  /** Answers an error; the text begins with its code. */
  fail(text: string): void;
  /** Executes reads whose values are sent as they arrive. */
  send(reads: Parameters<RespPages['send']>[0]): Promise<void>;
  /** Counts an ended command. */
  count(spec: CommandSpec, result: CommandResult): void;
  /** Counts keys that were looked up, and how many of them have a value. */
  countLookup(asked: number, found: number): void;
  /** Ends the connection when all answers have been sent. */
  quit(): void;
}

/** Facts about the node that a client may ask for. */
export interface RespFacts {
  readonly nodeId: string;
  readonly packageVersion: string;
  readonly processId: number;
  readonly port: number;
  readonly uptimeS: () => number;
  /** Date against which clients state expiries, in milliseconds since 1970. */
  readonly dateMs: () => number;
  readonly clients: () => number;
  readonly commands: () => number;
  readonly poolUsedBytes: () => number;
  readonly poolCapacityBytes: () => number;
  readonly poolEntries: () => number;
}

/** Executes consecutive commands of one kind, and answers each in order. */
export type BatchRun = (commands: readonly RespCommand[], session: RespSession) => Promise<void>;

/** A kind of command of which several are executed together. */
export interface Batch {
  /** Whether answers are sent while the batch runs, so that a failure can no longer be answered. */
  readonly isStreamed?: boolean;
  readonly run: BatchRun;
}

/** One command. Exactly one of `run` and `batch` is set. */
export interface CommandSpec {
  readonly name: string;
  /** Number of words including the name; if negative, the minimum. */
  readonly arity: number;
  readonly summary: string;
  readonly group: 'string' | 'generic' | 'connection' | 'server';
  readonly flags: readonly string[];
  /** The right that a user needs for it; undefined if it concerns only the connection itself. */
  readonly right: Right | undefined;
  /** Positions of the first and the last key, and the step; all 0 without keys. */
  readonly keys: readonly [first: number, last: number, step: number];
  /** Executes and answers the command. An error that it throws is sent as the answer. */
  readonly run?: (args: readonly RespArgument[], session: RespSession) => Promise<void> | void;
  readonly batch?: Batch;
  /** Whether an unauthenticated client may send it. */
  readonly isOpen?: boolean;
}

/** An error that a command answers with; the text begins with its code. */
export class CommandError extends Error {}

/** Returns the argument as text; empty for one that was dropped. */
export function textOf(argument: RespArgument | undefined): string {
  return argument?.toString() ?? '';
}

/** Returns the argument as the name of a command or an option. */
export function wordOf(argument: RespArgument | undefined): string {
  return argument === null || argument === undefined || argument.length > 64
    ? ''
    : argument.toString('latin1').toLowerCase();
}

/** Whether a command changes what other clients see. */
export function isChange({ flags }: CommandSpec): boolean {
  return flags.includes('write');
}

/** Returns the text that a client gets for an error of a command. */
export function textOfError(error: unknown): string {
  if (error instanceof CommandError) return error.message;
  if (error instanceof ClosedError) return 'ERR the node is closing';
  const isLate = (error as Error | undefined)?.name === 'TimeoutError';
  return isLate ? 'ERR the command has taken too long' : 'ERR the command has failed on the node';
}
