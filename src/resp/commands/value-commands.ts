import { EXPIRY_MAX_MS } from '../../base/limits.js';
import type { CallTime } from '../../store/call/call-options.js';
import { KeyStepSize } from '../../store/call/key-steps.js';
import { storeKeyOf } from '../values/resp-keys.js';
import type { StepOptions, ValueWrite } from '../values/resp-pages.js';
import type { ValueRead } from '../values/value-sender.js';
import { arrayHead, integer, nilOf, OK } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';
import {
  type Batch,
  CommandError,
  type CommandSpec,
  type RespCommand,
  type RespSession,
  textOf,
  wordOf,
} from './command.js';

/**
 * Options of SET that state when the value expires: the milliseconds of their unit, and whether the number counts from
 * 1970.
 */
const EXPIRIES: ReadonlyMap<string, ExpiryUnit> = new Map([
  ['ex', { unitMs: 1000, isDate: false }],
  ['px', { unitMs: 1, isDate: false }],
  ['exat', { unitMs: 1000, isDate: true }],
  ['pxat', { unitMs: 1, isDate: true }],
]);

/** Options of SET that Redis has and meshcache does not support. */
const REFUSED: ReadonlySet<string> = new Set(['keepttl', 'nx', 'xx', 'get']);

/**
 * A whole number as Redis accepts it, without leading zeros, plus sign or spaces. A 64-bit number has at most 19
 * digits.
 */
const WHOLE_NUMBER = /^(?:0|-?[1-9]\d{0,18})$/;

const INTEGER_MAX = 2n ** 63n - 1n;

/** How an option states an expiry. */
interface ExpiryUnit {
  readonly unitMs: number;
  /** Whether the number is a time since 1970 rather than from now. */
  readonly isDate: boolean;
}

/** Returns an argument that is a key. Keys are never dropped, because only values are that large. */
function keyOf(argument: RespArgument | undefined): Buffer {
  if (argument === null || argument === undefined) throw new CommandError('ERR no memory for a key of this length');
  return argument;
}

/** Returns how a call with many keys is aborted, and how it lets others take their turn. */
function stepsOf({ signal, goOn }: RespSession): StepOptions {
  return { signal, goOn };
}

/** GET and MGET. */
const READS: Batch = {
  isStreamed: true,
  async run(commands, session) {
    let reads: ValueRead[] = [];
    const size = new KeyStepSize();
    for (const { spec, args } of commands) {
      const isMany = spec.name === 'mget';
      for (const [i, argument] of args.entries()) {
        const key = keyOf(argument);
        if (size.add(key.length)) {
          await session.send(reads);
          reads = [];
          await session.goOn();
        }
        reads.push({
          key: storeKeyOf(key),
          head: isMany && i === 0 ? arrayHead(args.length) : undefined,
          onDone(isHit) {
            if (i === args.length - 1) session.count(spec, isMany || isHit ? 'ok' : 'nil');
          },
        });
      }
    }
    await session.send(reads);
  },
};

/** SET, SETEX, PSETEX and MSET. The answer is nil unless all values of the command are set. */
const WRITES: Batch = {
  async run(commands, session) {
    const writes: ValueWrite[] = [];
    const time = session.timeOf(commands[0] as RespCommand);
    const plans = commands.map((command) => planWrites(command, writes, time.dateMs));
    const results = await session.pages.set(writes, { ...stepsOf(session), time });
    for (const [i, { spec }] of commands.entries()) {
      const plan = plans[i] as WritePlan;
      if (plan.error !== undefined) {
        session.fail(plan.error);
        session.count(spec, 'error');
        continue;
      }
      const isSet = results.slice(plan.start, plan.end).every((flag) => flag);
      session.addBytes(isSet ? OK : nilOf(session.protocol));
      session.count(spec, isSet ? 'ok' : 'nil');
    }
  },
};

interface WritePlan {
  /** The writes of the command, from `start` to before `end`. */
  readonly start: number;
  readonly end: number;
  readonly error?: string;
}

/** Milliseconds of the unit in which these commands state an expiry, before the value. */
const EXPIRY_UNIT_MS: ReadonlyMap<string, number> = new Map([
  ['setex', 1000],
  ['psetex', 1],
]);

function planWrites({ spec, args }: RespCommand, writes: ValueWrite[], dateMs: number): WritePlan {
  const start = writes.length;
  try {
    const unitMs = EXPIRY_UNIT_MS.get(spec.name);
    if (spec.name === 'set') {
      const expiresInMs = expiryOfSet(args.slice(2), dateMs);
      writes.push({ key: keyOf(args[0]), value: args[1] ?? null, expiresInMs });
    } else if (unitMs !== undefined) {
      const expiresInMs = expiryOf(args[1], { unitMs, isDate: false }, { command: spec.name, dateMs });
      writes.push({ key: keyOf(args[0]), value: args[2] ?? null, expiresInMs });
    } else {
      if (args.length % 2 !== 0) throw new CommandError("ERR wrong number of arguments for 'mset' command");
      for (let i = 0; i < args.length; i += 2) keyOf(args[i]);
      for (let i = 0; i < args.length; i += 2) writes.push({ key: keyOf(args[i]), value: args[i + 1] ?? null });
    }
    return { start, end: writes.length };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return { start, end: start, error: error.message };
  }
}

/** Asks for all keys of consecutive commands at once, and answers each command with a number. */
function counting(
  count: (keys: readonly Buffer[], session: RespSession, time: CallTime) => Promise<readonly number[]>,
): Batch {
  return {
    async run(commands, session) {
      const keys: Buffer[] = [];
      for (const { args } of commands) for (const argument of args) keys.push(keyOf(argument));
      const counts = await count(keys, session, session.timeOf(commands[0] as RespCommand));
      let at = 0;
      for (const { spec, args } of commands) {
        const own = counts.slice(at, at + args.length);
        at += args.length;
        if (own.some((number) => Number.isNaN(number))) {
          session.fail('TRYAGAIN a node has not confirmed that the value is deleted; it is told again');
          session.count(spec, 'error');
          continue;
        }
        session.addBytes(integer(own.reduce((sum, number) => sum + number, 0)));
        session.count(spec, 'ok');
      }
    },
  };
}

/** EXISTS. It counts the keys that have a value, so each key counts as a lookup of its own. */
const EXISTS = counting(async (keys, session) => {
  const flags = await session.pages.exists(keys, session);
  session.countLookup(keys.length, flags.filter((isThere) => isThere).length);
  return flags.map(Number);
});

/** DEL and UNLINK. The result is 1 for each key that had a value, NaN if a node has not confirmed the deletion. */
const DELETES = counting((keys, session, time) => session.pages.delete(keys, { ...stepsOf(session), time }));

async function strlen([key]: readonly RespArgument[], session: RespSession): Promise<void> {
  session.answer((await session.pages.lengthOf(storeKeyOf(keyOf(key)), session.signal)) ?? 0);
}

async function isThere(key: RespArgument | undefined, session: RespSession): Promise<boolean> {
  const [there] = await session.pages.exists([keyOf(key)], session);
  return there === true;
}

/** TTL and PTTL: the time until a value expires, -1 if it does not expire, -2 if there is no value. */
function timeToLive(unitMs: number): Required<CommandSpec>['run'] {
  return async ([key], session) => {
    const leftMs = await session.pages.remainingMs(storeKeyOf(keyOf(key)), session.signal);
    if (leftMs === null) session.answer(-2);
    else session.answer(Number.isFinite(leftMs) ? Math.round(leftMs / unitMs) : -1);
  };
}

async function type([key]: readonly RespArgument[], session: RespSession): Promise<void> {
  session.answer({ status: (await isThere(key, session)) ? 'string' : 'none' });
}

/** Commands about values. */
export const VALUE_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'get',
    arity: 2,
    summary: 'Returns the value of a key.',
    group: 'string',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, 1, 1],
    batch: READS,
  },
  {
    name: 'mget',
    arity: -2,
    summary: 'Returns the values of keys.',
    group: 'string',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, -1, 1],
    batch: READS,
  },
  {
    name: 'set',
    arity: -3,
    summary: 'Sets the value of a key; nil if it is not stored.',
    group: 'string',
    flags: ['write', 'denyoom'],
    right: 'write',
    keys: [1, 1, 1],
    batch: WRITES,
  },
  {
    name: 'setex',
    arity: 4,
    summary: 'Sets a value that expires after so many seconds.',
    group: 'string',
    flags: ['write', 'denyoom'],
    right: 'write',
    keys: [1, 1, 1],
    batch: WRITES,
  },
  {
    name: 'psetex',
    arity: 4,
    summary: 'Sets a value that expires after so many milliseconds.',
    group: 'string',
    flags: ['write', 'denyoom'],
    right: 'write',
    keys: [1, 1, 1],
    batch: WRITES,
  },
  {
    name: 'mset',
    arity: -3,
    summary: 'Sets the values of keys; nil unless all are stored.',
    group: 'string',
    flags: ['write', 'denyoom'],
    right: 'write',
    keys: [1, -1, 2],
    batch: WRITES,
  },
  {
    name: 'exists',
    arity: -2,
    summary: 'Counts the keys that have a value.',
    group: 'generic',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, -1, 1],
    batch: EXISTS,
  },
  {
    name: 'del',
    arity: -2,
    summary: 'Deletes values on all nodes.',
    group: 'generic',
    flags: ['write'],
    right: 'write',
    keys: [1, -1, 1],
    batch: DELETES,
  },
  {
    name: 'unlink',
    arity: -2,
    summary: 'Deletes values on all nodes, as DEL does.',
    group: 'generic',
    flags: ['write', 'fast'],
    right: 'write',
    keys: [1, -1, 1],
    batch: DELETES,
  },
  {
    name: 'strlen',
    arity: 2,
    summary: 'Returns the length of a value.',
    group: 'string',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, 1, 1],
    run: strlen,
  },
  {
    name: 'type',
    arity: 2,
    summary: 'Returns string or none.',
    group: 'generic',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, 1, 1],
    run: type,
  },
  {
    name: 'ttl',
    arity: 2,
    summary: 'Returns the seconds until a value expires, -1 if it does not, -2 without a value.',
    group: 'generic',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, 1, 1],
    run: timeToLive(1000),
  },
  {
    name: 'pttl',
    arity: 2,
    summary: 'Returns the milliseconds until a value expires, as TTL does.',
    group: 'generic',
    flags: ['readonly', 'fast'],
    right: 'read',
    keys: [1, 1, 1],
    run: timeToLive(1),
  },
];

/**
 * Parses everything after the value of a SET; all its options are handled here. Returns the milliseconds until the
 * value expires, 1 for a time in the past, undefined for never. Throws `CommandError` for an option that would have no
 * effect.
 */
function expiryOfSet(options: readonly RespArgument[], dateMs: number): number | undefined {
  let expiry: { readonly argument: RespArgument | undefined; readonly unit: ExpiryUnit } | undefined;
  let refused: string | undefined;
  for (let i = 0; i < options.length; i++) {
    const word = wordOf(options[i]);
    const unit = EXPIRIES.get(word);
    if (unit !== undefined && expiry === undefined && i + 1 < options.length) expiry = { argument: options[++i], unit };
    else if (REFUSED.has(word)) refused ??= word;
    else throw new CommandError('ERR syntax error');
  }
  if (refused !== undefined) {
    throw new CommandError(`ERR SET with the option ${refused.toUpperCase()} is not supported by meshcache`);
  }
  return expiry && expiryOf(expiry.argument, expiry.unit, { command: 'set', dateMs });
}

/**
 * Returns the milliseconds from now until an expiry that a client has stated; 1 for a time in the past. Throws
 * `CommandError`.
 */
function expiryOf(
  argument: RespArgument | undefined,
  { unitMs, isDate }: ExpiryUnit,
  { command, dateMs }: { readonly command: string; readonly dateMs: number },
): number {
  const text = textOf(argument);
  const value = WHOLE_NUMBER.test(text) ? BigInt(text) : undefined;
  if (value === undefined || value > INTEGER_MAX || value < -INTEGER_MAX - 1n) {
    throw new CommandError('ERR value is not an integer or out of range');
  }
  if (value <= 0n) throw new CommandError(`ERR invalid expire time in '${command}' command`);
  const ms = Number(value) * unitMs - (isDate ? dateMs : 0);
  if (ms <= EXPIRY_MAX_MS) return Math.max(1, ms);
  // Redis would accept every expiry that fits into 64 bits.
  throw new CommandError(`ERR invalid expire time in '${command}' command: a value expires after ten years at most`);
}
