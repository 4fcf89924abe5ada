import { OK } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';
import { CommandError, type CommandSpec, type RespSession, textOf, wordOf } from './command.js';
import { REDIS_VERSION } from './server-commands.js';

const NO_KEYS = [0, 0, 0] as const;
const WRONG_PASSWORD = 'WRONGPASS invalid username-password pair or user is disabled.';
const TOO_MANY_WRONG = 'ERR too many wrong passwords from this address; try again in a few seconds';
const NO_PASSWORD =
  'ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?';
const HELLO_NEEDS_AUTH =
  'NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used ' +
  'to authenticate the client and select the RESP protocol version at the same time';
/** Allowed characters in the name of a connection: printable ASCII without spaces. */
const NAME = /^[!-~]*$/;

function ping([message]: readonly RespArgument[], session: RespSession): void {
  session.answer(message ?? { status: 'PONG' });
}

function echo([message]: readonly RespArgument[], session: RespSession): void {
  if (message === null || message === undefined) throw new CommandError('ERR no memory for a message of this length');
  session.answer(message);
}

function quit(_args: readonly RespArgument[], session: RespSession): void {
  session.addBytes(OK);
  session.quit();
}

function select([index]: readonly RespArgument[], session: RespSession): void {
  const text = textOf(index);
  if (!/^-?\d{1,10}$/.test(text)) throw new CommandError('ERR value is not an integer or out of range');
  if (Number(text) !== 0) throw new CommandError('ERR DB index is out of range');
  session.addBytes(OK);
}

/** AUTH password, or AUTH user password; a token is the password of its user, whose name may be left out. */
function auth(args: readonly RespArgument[], session: RespSession): void {
  if (args.length > 2) throw new CommandError('ERR syntax error');
  if (args.length === 1 && !session.access.knowsSecrets) throw new CommandError(NO_PASSWORD);
  authenticate(args.length === 1 ? undefined : textOf(args[0]), args.at(-1), session);
  session.addBytes(OK);
}

function authenticate(user: string | undefined, password: RespArgument | undefined, { access }: RespSession): void {
  const verdict = access.login(user, password ?? Buffer.alloc(0));
  if (verdict === 'paused') throw new CommandError(TOO_MANY_WRONG);
  if (verdict === 'wrong') throw new CommandError(WRONG_PASSWORD);
}

/** HELLO [version [AUTH user password] [SETNAME name]] */
function hello(args: readonly RespArgument[], session: RespSession): void {
  let protocol = session.protocol;
  if (args.length > 0) {
    const text = textOf(args[0]);
    if (!/^\d{1,10}$/.test(text)) throw new CommandError('ERR Protocol version is not an integer or out of range');
    if (text !== '2' && text !== '3') throw new CommandError('NOPROTO unsupported protocol version');
    protocol = text === '2' ? 2 : 3;
  }
  let name: Buffer | undefined;
  for (let i = 1; i < args.length; ) {
    const word = wordOf(args[i]);
    const left = args.length - i - 1;
    if (word === 'auth' && left >= 2) {
      authenticate(textOf(args[i + 1]), args[i + 2], session);
      i += 3;
    } else if (word === 'setname' && left >= 1) {
      name = checkedName(args[i + 1]);
      i += 2;
    } else {
      throw new CommandError(`ERR Syntax error in HELLO option '${textOf(args[i]).slice(0, 64)}'`);
    }
  }
  if (!session.access.isTrusted) throw new CommandError(HELLO_NEEDS_AUTH);
  session.protocol = protocol;
  if (name !== undefined) session.name = name;
  session.answer({
    map: [
      ['server', 'redis'],
      ['version', REDIS_VERSION],
      ['proto', protocol],
      ['id', session.id],
      ['mode', 'standalone'],
      ['role', 'master'],
      ['modules', []],
    ],
  });
}

function reset(_args: readonly RespArgument[], session: RespSession): void {
  session.name = Buffer.alloc(0);
  session.protocol = 2;
  session.access.reset();
  session.answer({ status: 'RESET' });
}

function checkedName(name: RespArgument | undefined): Buffer {
  if (name === null || name === undefined || name.length > 1024 || !NAME.test(name.toString('latin1'))) {
    throw new CommandError('ERR Client names cannot contain spaces, newlines or special characters.');
  }
  return Buffer.from(name);
}

interface Subcommand {
  /** Number of words after the name of the subcommand. */
  readonly words: number;
  readonly run: (args: readonly RespArgument[], session: RespSession) => void;
}

const onOrOff = (words: readonly RespArgument[], session: RespSession): void => {
  if (!['on', 'off'].includes(wordOf(words[0]))) throw new CommandError('ERR syntax error');
  session.addBytes(OK);
};

/** The CLIENT subcommands that client libraries send on their own. */
const CLIENT: ReadonlyMap<string, Subcommand> = new Map<string, Subcommand>([
  [
    'setname',
    {
      words: 1,
      run([name], session) {
        session.name = checkedName(name);
        session.addBytes(OK);
      },
    },
  ],
  ['getname', { words: 0, run: (_, session) => session.answer(session.name.length === 0 ? null : session.name) }],
  ['id', { words: 0, run: (_, session) => session.answer(session.id) }],
  ['info', { words: 0, run: (_, session) => session.answer({ verbatim: `${clientLine(session)}\n` }) }],
  [
    'setinfo',
    {
      words: 2,
      run([attribute, value], session) {
        const name = wordOf(attribute);
        if (name !== 'lib-name' && name !== 'lib-ver') {
          throw new CommandError(`ERR Unrecognized option '${textOf(attribute).slice(0, 64)}'`);
        }
        if (!NAME.test(textOf(value))) {
          throw new CommandError(`ERR ${name} cannot contain spaces, newlines or special characters.`);
        }
        session.addBytes(OK);
      },
    },
  ],
  ['no-evict', { words: 1, run: onOrOff }],
  ['no-touch', { words: 1, run: onOrOff }],
]);

function clientLine({ id, name, protocol, access }: RespSession): string {
  return `id=${id} name=${name.toString('latin1')} db=0 user=${access.name} resp=${protocol}`;
}

function client([word, ...args]: readonly RespArgument[], session: RespSession): void {
  const name = wordOf(word);
  const subcommand = CLIENT.get(name);
  if (subcommand === undefined) {
    throw new CommandError(`ERR unknown subcommand '${textOf(word).slice(0, 128)}'. Try CLIENT HELP.`);
  }
  if (args.length !== subcommand.words) {
    throw new CommandError(`ERR wrong number of arguments for 'client|${name}' command`);
  }
  subcommand.run(args, session);
}

/** ACL WHOAMI */
function acl([word]: readonly RespArgument[], session: RespSession): void {
  if (wordOf(word) !== 'whoami') {
    throw new CommandError(`ERR unknown subcommand '${textOf(word).slice(0, 128)}'. Try ACL WHOAMI.`);
  }
  session.answer(session.access.name);
}

/** The answer to a command of an unauthenticated client. */
export const NO_AUTH = 'NOAUTH Authentication required.';

/** Commands about the connection. */
export const CONNECTION_COMMANDS: readonly CommandSpec[] = [
  spec('ping', -1, 'Answers PONG, or the message.', { run: ping, maxArity: 2 }),
  spec('echo', 2, 'Answers the message.', { run: echo }),
  spec('quit', -1, 'Ends the connection.', { run: quit, isOpen: true }),
  spec('select', 2, 'Selects database 0, the only one.', { run: select }),
  spec('auth', -2, 'Authenticates the connection.', { run: auth, isOpen: true }),
  spec('hello', -1, 'Selects the version of the protocol.', { run: hello, isOpen: true }),
  spec('reset', 1, 'Makes the connection as a new one.', { run: reset, isOpen: true }),
  spec('client', -2, 'Names the connection, and tells about it.', { run: client }),
  spec('acl', -2, 'Tells which user the connection is.', { run: acl, maxArity: 2 }),
];

function spec(
  name: string,
  arity: number,
  summary: string,
  {
    run,
    isOpen = false,
    maxArity,
  }: Pick<CommandSpec, 'isOpen'> & Pick<Required<CommandSpec>, 'run'> & { readonly maxArity?: number },
): CommandSpec {
  return {
    name,
    arity,
    summary,
    group: 'connection',
    flags: ['fast', ...(isOpen ? ['no_auth'] : [])],
    right: undefined,
    keys: NO_KEYS,
    isOpen,
    run(args, session) {
      if (maxArity !== undefined && args.length + 1 > maxArity) {
        throw new CommandError(`ERR wrong number of arguments for '${name}' command`);
      }
      return run(args, session);
    },
  };
}
