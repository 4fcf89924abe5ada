import { RESP_ARGUMENT_MAX_BYTES } from '../../base/limits.js';
import { OK } from '../wire/resp-answers.js';
import type { RespArgument } from '../wire/resp-parser.js';
import { CommandError, type CommandSpec, type RespFacts, type RespSession, textOf, wordOf } from './command.js';

/** The Redis version that is reported; some clients check it before they use a command. */
export const REDIS_VERSION = '7.0.0';

/** The longest pattern of CONFIG GET. */
const PATTERN_MAX_CHARACTERS = 128;

function lines(facts: RespFacts): ReadonlyMap<string, readonly string[]> {
  return new Map([
    [
      'server',
      [
        `redis_version:${REDIS_VERSION}`,
        'redis_mode:standalone',
        `meshcache_version:${facts.packageVersion}`,
        `meshcache_node:${facts.nodeId}`,
        `process_id:${facts.processId}`,
        `tcp_port:${facts.port}`,
        `uptime_in_seconds:${Math.floor(facts.uptimeS())}`,
      ],
    ],
    ['clients', [`connected_clients:${facts.clients()}`]],
    ['memory', [`used_memory:${facts.poolUsedBytes()}`, `maxmemory:${facts.poolCapacityBytes()}`]],
    ['persistence', ['loading:0', 'async_loading:0']],
    ['stats', [`total_commands_processed:${facts.commands()}`]],
    ['replication', ['role:master', 'connected_slaves:0']],
    ['cluster', ['cluster_enabled:0']],
    ['keyspace', [`db0:keys=${facts.poolEntries()},expires=0,avg_ttl=0`]],
  ]);
}

/** INFO [section …] */
function info(args: readonly RespArgument[], session: RespSession): void {
  const wanted = new Set(args.map(wordOf));
  const isAll = wanted.size === 0 || ['all', 'everything', 'default'].some((word) => wanted.has(word));
  const text = [...lines(session.facts)]
    .filter(([name]) => isAll || wanted.has(name))
    .map(([name, all]) => `# ${name[0]?.toUpperCase()}${name.slice(1)}\r\n${all.map((line) => `${line}\r\n`).join('')}`)
    .join('\r\n');
  session.answer({ verbatim: text });
}

function settings(facts: RespFacts): readonly (readonly [string, string])[] {
  return [
    ['appendonly', 'no'],
    ['databases', '1'],
    ['maxmemory', String(facts.poolCapacityBytes())],
    ['port', String(facts.port)],
    ['proto-max-bulk-len', String(RESP_ARGUMENT_MAX_BYTES)],
    ['save', ''],
    ['timeout', '0'],
  ];
}

/** CONFIG GET pattern … */
function config([word, ...patterns]: readonly RespArgument[], session: RespSession): void {
  if (wordOf(word) !== 'get') {
    throw new CommandError(`ERR unknown subcommand '${textOf(word).slice(0, 128)}'. Try CONFIG HELP.`);
  }
  if (patterns.length === 0) throw new CommandError("ERR wrong number of arguments for 'config|get' command");
  const wanted = patterns.map((pattern) => textOf(pattern).toLowerCase());
  const found = settings(session.facts).filter(([name]) => wanted.some((pattern) => matches(name, pattern)));
  session.answer({ map: found });
}

/** Whether a name matches a pattern in which `*` stands for any characters and `?` for one. */
function matches(name: string, pattern: string): boolean {
  if (pattern.length > PATTERN_MAX_CHARACTERS) return false;
  // Positions in the name up to which the pattern matches so far. There are few of them, so no pattern takes long.
  let ends = new Set([0]);
  for (const character of pattern) {
    const next = new Set<number>();
    for (const end of ends) {
      if (character === '*') for (let at = end; at <= name.length; at++) next.add(at);
      else if (end < name.length && (character === '?' || character === name[end])) next.add(end + 1);
    }
    ends = next;
  }
  return ends.has(name.length);
}

async function dbsize(_args: readonly RespArgument[], session: RespSession): Promise<void> {
  session.answer(await session.pages.count(session.signal));
}

/** FLUSHDB and FLUSHALL. They are the same, because there is only one database. */
async function flush(args: readonly RespArgument[], session: RespSession): Promise<void> {
  if (args.length > 1 || (args.length === 1 && !['async', 'sync'].includes(wordOf(args[0])))) {
    throw new CommandError('ERR syntax error');
  }
  await session.access.audited('clear', () => session.pages.clear(session.signal));
  session.addBytes(OK);
}

/** Commands about the node. */
export const SERVER_COMMANDS: readonly CommandSpec[] = [
  spec('info', -1, 'Tells about the node.', { right: 'status', run: info }),
  spec('config', -2, 'Tells settings that clients ask for.', { right: 'status', run: config }),
  spec('dbsize', 1, 'Counts the values that this node has.', { right: 'read', run: dbsize }),
  spec('flushdb', -1, 'Drops the values that were set at this node.', { right: 'clear', run: flush }),
  spec('flushall', -1, 'Does the same as FLUSHDB.', { right: 'clear', run: flush }),
];

function spec(
  name: string,
  arity: number,
  summary: string,
  does: Pick<Required<CommandSpec>, 'right' | 'run'>,
): CommandSpec {
  const flags = does.right === 'clear' ? ['write'] : ['readonly'];
  return { name, arity, summary, group: 'server', flags, keys: [0, 0, 0], ...does };
}
