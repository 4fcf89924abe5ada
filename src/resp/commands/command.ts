import { ClosedError } from '../../base/errors.js';
import type { Right } from '../../net/users.js';
import type { CallTime } from '../../store/call/call-options.js';
import type { RespAccess } from '../access/resp-access.js';
import type { RespPages } from '../values/resp-pages.js';
import type { Protocol } from '../wire/protocol.js';
import type { Answer } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';

/** How a command ended; a label of `meshcache_resp_commands_total`. `nil`: a value was not there, or not set. */
export type CommandResult = 'ok' | 'nil' | 'error';

/** A command that was received; its name is not among the arguments. */
export interface RespCommand {
  readonly spec: CommandSpec;
  readonly args: readonly RespArgument[];
  /** The earliest time at which it was sent, by the monotonic clock. */
  readonly sentAfterMs: number;
}

/** The time of a command. */
export interface CommandTime extends CallTime {
  /** The date at `askedMs`, in milliseconds since 1970. */
  readonly dateMs: number;
}

/** What a command sees of its connection and of the node. */
export interface RespSession {
  readonly id: number;
  /** Name that the client gave to its connection. */
  name: Buffer;
  protocol: Protocol;
  /** The user of the connection, and what it may do. */
  readonly access: RespAccess;
  /** The pages that the client's commands reach. Throws {@link CommandError} if there are none. */
  readonly pages: RespPages;
  readonly facts: RespFacts;
  /** Aborted when the connection is closed. */
  readonly signal: AbortSignal;
  /** Lets other clients have their turn between two steps of a long command; undefined: none need it now. */
  readonly goOn: () => Promise<void> | undefined;
  /**
   * The time of commands that are carried out together, the first of which is given; over when the client has ended the
   * connection.
   */
  timeOf(first: RespCommand): CommandTime;
  answer(value: Answer): void;
  /** Adds bytes to the answers as they are. */
  addBytes(bytes: Uint8Array): void;
  /** Answers an error; the text begins with its code. */
  fail(text: string): void;
  /** Carries out reads whose values are sent as they come. */
  send(reads: Parameters<RespPages['send']>[0]): Promise<void>;
  /** Counts an ended command. */
  count(spec: CommandSpec, result: CommandResult): void;
  /** Counts keys that were looked up, and those that have a value. */
  countLookup(asked: number, found: number): void;
  /** Ends the connection when all answers have been sent. */
  quit(): void;
}

/** What a client may ask about the node. */
export interface RespFacts {
  readonly nodeId: string;
  readonly packageVersion: string;
  readonly processId: number;
  readonly port: number;
  readonly uptimeS: () => number;
  /** The date by which clients give expiries, in milliseconds since 1970. */
  readonly dateMs: () => number;
  readonly clients: () => number;
  readonly commands: () => number;
  readonly poolUsedBytes: () => number;
  readonly poolCapacityBytes: () => number;
  readonly poolEntries: () => number;
}

/** Carries out commands of one kind that lie next to each other, and answers each in order. */
export type BatchRun = (commands: readonly RespCommand[], session: RespSession) => Promise<void>;

/** A kind of commands that are carried out together. */
export interface Batch {
  /** Whether answers are sent while it runs, so that a failure cannot be answered any more. */
  readonly isStreamed?: boolean;
  readonly run: BatchRun;
}

/** One command. Exactly one of `run` and `batch` is there. */
export interface CommandSpec {
  readonly name: string;
  /** Number of words with the name; negative: at least so many. */
  readonly arity: number;
  readonly summary: string;
  readonly group: 'string' | 'generic' | 'connection' | 'server';
  readonly flags: readonly string[];
  /** The right that a user needs for it; undefined: it concerns only the connection itself. */
  readonly right: Right | undefined;
  /** Positions of the first and the last key, and the step; all 0 without keys. */
  readonly keys: readonly [first: number, last: number, step: number];
  /** Answers the command. An error that it throws is answered. */
  readonly run?: (args: readonly RespArgument[], session: RespSession) => Promise<void> | void;
  readonly batch?: Batch;
  /** Whether a client that has not authenticated itself may send it. */
  readonly isOpen?: boolean;
}

/** An error that a command answers with; the text begins with its code. */
export class CommandError extends Error {}

/** The argument as text; one that was dropped is empty. */
export function textOf(argument: RespArgument | undefined): string {
  return argument?.toString() ?? '';
}

/** The argument as the name of a command or an option. */
export function wordOf(argument: RespArgument | undefined): string {
  return argument === null || argument === undefined || argument.length > 64
    ? ''
    : argument.toString('latin1').toLowerCase();
}

/** Whether a command changes what others see. */
export function isChange({ flags }: CommandSpec): boolean {
  return flags.includes('write');
}

/** What a client is told of an error that has ended a command. */
export function textOfError(error: unknown): string {
  if (error instanceof CommandError) return error.message;
  if (error instanceof ClosedError) return 'ERR the node is closing';
  const isLate = (error as Error | undefined)?.name === 'TimeoutError';
  return isLate ? 'ERR the command has taken too long' : 'ERR the command has failed on the node';
}
