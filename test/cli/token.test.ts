import test from 'ava';
import { digestOf } from '../../src/net/users.js';
import { runCli } from '../_support/cli/run-cli.js';

test('meshcache token: prints another token each time, with the digest for users_file', async (t) => {
  const made = await Promise.all([runCli(['token', '--json']), runCli(['token', '--json'])]);
  const [one, other] = made.map(({ stdout }) => JSON.parse(stdout));
  t.regex(one.token, /^[A-Za-z0-9_-]{43}$/);
  t.is(one.token_sha256, digestOf(one.token));
  t.not(one.token, other.token);
  const { stdout, status } = await runCli(['token']);
  const [, token, digest] = /^token {9}(\S+)\ntoken_sha256 {2}(\S+)\n$/.exec(stdout) ?? [];
  t.is(digest, digestOf(token ?? ''));
  t.is(status, 0);
});
