import type { Answer } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';
import { CommandError, type CommandSpec, type RespSession, textOf, wordOf } from './command.js';
import { CONNECTION_COMMANDS } from './connection-commands.js';
import { SERVER_COMMANDS } from './server-commands.js';
import { VALUE_COMMANDS } from './value-commands.js';

/** Most characters that an error about an unknown command repeats of its words. */
const SHOWN_MAX_CHARACTERS = 128;

/** COMMAND, COMMAND COUNT, COMMAND INFO [name …], COMMAND DOCS [name …] */
const COMMAND: CommandSpec = {
  name: 'command',
  arity: -1,
  summary: 'Tells about the commands.',
  group: 'server',
  flags: ['loading', 'stale'],
  right: undefined,
  keys: [0, 0, 0],
  run([word, ...names], session: RespSession) {
    const all = [...COMMANDS.values()];
    const wanted = (): (CommandSpec | undefined)[] =>
      names.length === 0 ? all : names.map((name) => COMMANDS.get(wordOf(name)));
    switch (word === undefined ? '' : wordOf(word)) {
      case '':
        session.answer(all.map(described));
        break;
      case 'count':
        session.answer(all.length);
        break;
      case 'info':
        session.answer(wanted().map((spec) => (spec === undefined ? null : described(spec))));
        break;
      case 'docs':
        session.answer({
          map: wanted().flatMap((spec) => (spec === undefined ? [] : [[spec.name, documented(spec)] as const])),
        });
        break;
      default:
        throw new CommandError(
          `ERR unknown subcommand '${textOf(word).slice(0, SHOWN_MAX_CHARACTERS)}'. Try COMMAND HELP.`,
        );
    }
  },
};

/** All commands by name. */
export const COMMANDS: ReadonlyMap<string, CommandSpec> = new Map(
  [...VALUE_COMMANDS, ...CONNECTION_COMMANDS, ...SERVER_COMMANDS, COMMAND].map((spec) => [spec.name, spec]),
);

/** Returns the command that these words name, or the error to answer. */
export function commandOf([name, ...args]: readonly RespArgument[]): CommandSpec | string {
  const spec = COMMANDS.get(wordOf(name));
  if (spec === undefined) return unknownCommand(name, args);
  const words = args.length + 1;
  const isRight = spec.arity < 0 ? words >= -spec.arity : words === spec.arity;
  return isRight ? spec : `ERR wrong number of arguments for '${spec.name}' command`;
}

/** Commands that change the expiry of a value. Here, only SET can do that. */
const EXPIRY_COMMANDS: ReadonlySet<string> = new Set([
  'expire',
  'expireat',
  'getex',
  'persist',
  'pexpire',
  'pexpireat',
]);

function unknownCommand(name: RespArgument | undefined, args: readonly RespArgument[]): string {
  const word = wordOf(name);
  if (EXPIRY_COMMANDS.has(word)) {
    return `ERR ${word.toUpperCase()} is not supported by meshcache: SET the value anew, with EX or PX`;
  }
  const shown = (argument: RespArgument | undefined, characters: number) =>
    argument?.toString('latin1', 0, characters) ?? '';
  let beginning = '';
  for (const argument of args) {
    if (beginning.length >= SHOWN_MAX_CHARACTERS) break;
    beginning += `'${shown(argument, SHOWN_MAX_CHARACTERS - beginning.length)}' `;
  }
  return `ERR unknown command '${shown(name, SHOWN_MAX_CHARACTERS)}', with args beginning with: ${beginning}`;
}

/** An element of the answer to COMMAND. */
function described({ name, arity, flags, keys: [first, last, step], group }: CommandSpec): Answer {
  const status = (text: string): Answer => ({ status: text });
  return [
    name,
    arity,
    { set: flags.map(status) },
    first,
    last,
    step,
    { set: [status(`@${group === 'generic' ? 'keyspace' : group}`)] },
    [],
    [],
    [],
  ];
}

function documented({ summary, group, arity }: CommandSpec): Answer {
  return {
    map: [
      ['summary', summary],
      ['since', '1.0.0'],
      ['group', group],
      ['arity', arity],
    ],
  };
}
