import test, { type ExecutionContext } from 'ava';
import { WRONG_PASSWORDS_BURST_COUNT } from '../../src/base/limits.js';
import type { CommandSpec } from '../../src/resp/commands/command.js';
import { COMMANDS } from '../../src/resp/commands/command-table.js';
import { commandOf, placeOf, RawClient, startRespNode } from '../_support/resp/resp-fixture.js';
import { until } from '../_support/support.js';
import { rightsBut, tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

/** Each command as a client sends it that means the key `k`, with what it is answered where there is no such key. */
const CALLS: Readonly<Record<string, readonly [words: readonly string[], withoutKey: RegExp]>> = {
  get: [['k'], /^\$-1\r\n$/],
  mget: [['k', 'k'], /^\*2\r\n\$-1\r\n\$-1\r\n$/],
  set: [['k', 'other'], /^\+OK\r\n$/],
  setex: [['k', '100', 'other'], /^\+OK\r\n$/],
  psetex: [['k', '100000', 'other'], /^\+OK\r\n$/],
  mset: [['k', 'other'], /^\+OK\r\n$/],
  exists: [['k'], /^:0\r\n$/],
  del: [['k'], /^:0\r\n$/],
  unlink: [['k'], /^:0\r\n$/],
  strlen: [['k'], /^:0\r\n$/],
  type: [['k'], /^\+none\r\n$/],
  ttl: [['k'], /^:-2\r\n$/],
  pttl: [['k'], /^:-2\r\n$/],
  dbsize: [[], /^:0\r\n$/],
  flushdb: [[], /^\+OK\r\n$/],
  flushall: [[], /^\+OK\r\n$/],
  ping: [[], /^\+PONG\r\n$/],
  echo: [['k'], /^\$1\r\nk\r\n$/],
  quit: [[], /^\+OK\r\n$/],
  select: [['0'], /^\+OK\r\n$/],
  auth: [['b', tokenOf('b')], /^\+OK\r\n$/],
  hello: [['2'], /^\*14\r\n/],
  reset: [[], /^\+RESET\r\n-NOAUTH Authentication required\.\r\n$/],
  client: [['ID'], /^:\d+\r\n$/],
  acl: [['WHOAMI'], /^\$1\r\nb\r\n$/],
  info: [['replication'], /^\$\d+\r\n# Replication/],
  config: [['GET', 'save'], /^\*2\r\n/],
  command: [['COUNT'], /^:\d+\r\n$/],
};
const SPECS: readonly CommandSpec[] = [...COMMANDS.values()];

/**
 * Sends a command until it is answered: on a crowded machine a node may not have been running for so long that it does
 * not carry it out.
 */
async function ask(client: RawClient, ...words: readonly string[]): Promise<string> {
  for (;;) {
    const answer = await askOnce(client, ...words);
    if (!answer.startsWith('-TRYAGAIN')) return answer;
  }
}

/** Sends a command, and a word that comes back behind its answer; unless the client is nobody. */
async function askOnce(client: RawClient, ...words: readonly string[]): Promise<string> {
  client.send(commandOf(...words), commandOf('PING', 'the-end'));
  let answer = '';
  while (!/the-end\r\n$|-NOAUTH .*\r\n$/.test(answer) && !client.isEnded) answer += await client.text('.');
  return answer.replace('$7\r\nthe-end\r\n', '');
}

async function connectAs(t: ExecutionContext, place: { host: string; port: number }, name: string) {
  const client = await RawClient.connect(t, place);
  t.is(await ask(client, 'AUTH', name, tokenOf(name)), '+OK\r\n');
  return client;
}

test('resp users: tenants with the same keys do not meet by any command', async (t) => {
  t.deepEqual(Object.keys(CALLS).sort(), [...COMMANDS.keys()].sort(), 'each command is tried');
  const file = new UsersFile(t, userNamed('a'), userNamed('b'));
  const { store, ...place } = await startRespNode(t, { users_file: file.path });
  const owner = await connectAs(t, place, 'a');
  t.is(await ask(owner, 'SET', 'k', 'of a'), '+OK\r\n');
  for (const { name, flags } of SPECS) {
    const other = await connectAs(t, place, 'b');
    const [words, withoutKey] = CALLS[name] as (typeof CALLS)[string];
    t.regex(await ask(other, name, ...words), withoutKey, name);
    t.is(await ask(owner, 'GET', 'k'), '$4\r\nof a\r\n', `${name} of the other one has not touched it`);
    t.is(await ask(owner, 'DBSIZE'), ':1\r\n', `${name} of the other one is not counted`);
    if (flags.includes('write')) t.is(await ask(await connectAs(t, place, 'b'), 'FLUSHALL'), '+OK\r\n');
  }
  t.deepEqual(Buffer.from((await store.namespace({ tag: 'a' }).get('k')) ?? []).toString(), 'of a');
});

test('resp users: a command needs its right, and no other', async (t) => {
  const file = new UsersFile(
    t,
    ...SPECS.map(({ name, right }) => userNamed(`only-${name}`, { rights: right === undefined ? [] : [right] })),
    ...SPECS.map(({ name, right }) => userNamed(`but-${name}`, { rights: rightsBut(right) })),
  );
  const { store, ...place } = await startRespNode(t, { users_file: file.path });
  for (const { name, right } of SPECS) {
    const [words] = CALLS[name] as (typeof CALLS)[string];
    t.notRegex(await ask(await connectAs(t, place, `only-${name}`), name, ...words), /NOPERM/, name);
    if (right === undefined) continue;
    const answer = await ask(await connectAs(t, place, `but-${name}`), name, ...words);
    t.is(answer, `-NOPERM User but-${name} has no permissions to run the '${name}' command\r\n`);
  }
  t.is(store.stats().members, 1);
});

test('resp users: commands that are carried out together need the same right', (t) => {
  for (const { name, batch, right } of SPECS) {
    const together = SPECS.filter((other) => batch !== undefined && other.batch === batch);
    t.true(
      together.every((other) => other.right === right),
      name,
    );
  }
});

test('resp users: a token is the password of its user, whose name may be left out', async (t) => {
  const file = new UsersFile(t, userNamed('a'), userNamed('b'));
  const { store, ...place } = await startRespNode(t, { users_file: file.path });
  const client = await RawClient.connect(t, place);
  t.is(await ask(client, 'GET', 'k'), '-NOAUTH Authentication required.\r\n');
  client.socket.destroy();
  const wrong = await RawClient.connect(t, place);
  const WRONG = '-WRONGPASS invalid username-password pair or user is disabled.\r\n';
  for (const words of [['a', tokenOf('b')], ['none', tokenOf('a')], ['default', 'x'], ['x']]) {
    wrong.send(commandOf('AUTH', ...words));
    t.is(await wrong.text(WRONG), WRONG, words.join(' '));
  }
  t.is(await ask(wrong, 'AUTH', tokenOf('a')), '+OK\r\n');
  t.is(await ask(wrong, 'ACL', 'WHOAMI'), '$1\r\na\r\n');
  t.regex(await ask(wrong, 'HELLO', '2', 'AUTH', 'b', tokenOf('b')), /^\*14\r\n/);
  t.is(await ask(wrong, 'ACL', 'WHOAMI'), '$1\r\nb\r\n');
  t.regex(await ask(wrong, 'CLIENT', 'INFO'), /user=b/);
  wrong.send(commandOf('RESET'), commandOf('ACL', 'WHOAMI'));
  const end = '+RESET\r\n-NOAUTH Authentication required.\r\n';
  t.is(await wrong.text(end), end);
  t.is(store.stats().members, 1);
});

test('resp users: after a few wrong tokens a right one is not looked at', async (t) => {
  const file = new UsersFile(t, userNamed('a'));
  const place = placeOf((await startRespNode(t, { users_file: file.path })).store);
  const client = await RawClient.connect(t, place);
  const guesses = Array.from({ length: WRONG_PASSWORDS_BURST_COUNT }, (_, i) => commandOf('AUTH', 'a', `guess ${i}`));
  // At once, as time gives tries back.
  client.send(Buffer.concat([...guesses, commandOf('AUTH', 'a', tokenOf('a'))]));
  const wrong = '-WRONGPASS invalid username-password pair or user is disabled.\r\n'.repeat(
    WRONG_PASSWORDS_BURST_COUNT,
  );
  const paused = '-ERR too many wrong passwords from this address; try again in a few seconds\r\n';
  t.is(await client.text(wrong + paused), wrong + paused);
});

test('resp users: the password makes a client the user default, who has the rights of the file', async (t) => {
  const file = new UsersFile(t, userNamed('a'), { name: 'default', tags: ['*'], rights: ['read'] });
  const { store, ...place } = await startRespNode(t, { users_file: file.path, resp_password: 'the-password' });
  const client = await RawClient.connect(t, place);
  client.send(commandOf('GET', 'k'), commandOf('AUTH', 'the-password'), commandOf('GET', 'k'), commandOf('DEL', 'k'));
  const answers = [
    '-NOAUTH Authentication required.\r\n',
    '+OK\r\n$-1\r\n',
    "-NOPERM User default has no permissions to run the 'del' command\r\n",
  ].join('');
  t.is(await client.text(answers), answers);
  t.is(await ask(client, 'AUTH', 'a', tokenOf('a')), '+OK\r\n');
  t.is(await ask(client, 'DEL', 'k'), ':0\r\n');
  t.true(await store.namespace({ tag: 'redis' }).set('k', Buffer.from('of the node')));
  t.is(await ask(client, 'GET', 'k'), '$-1\r\n');
  t.is(await ask(client, 'AUTH', 'default', 'the-password'), '+OK\r\n');
  t.is(await ask(client, 'GET', 'k'), '$11\r\nof the node\r\n', 'its commands reach resp_namespace');
});

test('resp users: the commands of a user reach its redis_tag; without any tag of its own they are refused', async (t) => {
  const file = new UsersFile(
    t,
    userNamed('a', { tags: ['x*', 'y'], redis_tag: 'x-1' }),
    userNamed('b', { tags: ['x*', 'y'] }),
    userNamed('c', { tags: ['x*'] }),
  );
  const { store, ...place } = await startRespNode(t, { users_file: file.path });
  for (const [name, tag] of [
    ['a', 'x-1'],
    ['b', 'y'],
  ] as const) {
    t.is(await ask(await connectAs(t, place, name), 'SET', 'k', name), '+OK\r\n');
    t.deepEqual(Buffer.from((await store.namespace({ tag }).get('k')) ?? []).toString(), name);
  }
  const refused = '-NOPERM User c has no namespace for Redis commands: its redis_tag is missing\r\n';
  const client = await connectAs(t, place, 'c');
  for (const words of [['SET', 'k', 'v'], ['GET', 'k'], ['EXISTS', 'k'], ['DBSIZE'], ['FLUSHALL']]) {
    t.is(await ask(client, ...words), refused, words[0]);
  }
});

test('resp users: open connections meet the present rights, and end with their user', async (t) => {
  const file = new UsersFile(t, userNamed('a'), userNamed('b'));
  const { store, ...place } = await startRespNode(t, { users_file: file.path });
  const [one, other] = [await connectAs(t, place, 'a'), await connectAs(t, place, 'b')];
  t.is(await ask(one, 'SET', 'k', 'v'), '+OK\r\n');
  file.write(userNamed('a', { rights: ['read'] }), userNamed('b'));
  await until(async () => (await ask(one, 'SET', 'other', 'w')).startsWith('-NOPERM User a '));
  t.is(await ask(one, 'GET', 'k'), '$1\r\nv\r\n');
  file.write(userNamed('b'));
  await one.rest();
  t.is(await ask(other, 'PING'), '+PONG\r\n');
  t.is(store.stats().members, 1);
});
