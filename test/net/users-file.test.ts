import { chmodSync, readFileSync } from 'node:fs';
import test from 'ava';
import { digestOf, RIGHTS, Users } from '../../src/net/users.js';
import { readUsersFile, readUsersFileAgain } from '../../src/net/users-file.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { UsersFile, userNamed } from '../_support/users-file.js';

const USER = { name: 'a', tags: ['a'], rights: ['read'] };
const DIGEST = digestOf('token');

test('users file: what is wrong is said with the path, what was given and what is allowed', async (t) => {
  const file = new UsersFile(t);
  const wrong: readonly (readonly [content: unknown, problem: RegExp])[] = [
    [[], /the file: got a list, allowed is a mapping$/],
    [{}, /users: got undefined, allowed is a list of at most 1024$/],
    [{ users: [], more: 1 }, /has the key "more", allowed is users$/],
    [{ users: [1] }, /users\[0\]: got 1, allowed is a mapping$/],
    [{ users: [{ ...USER, tag: 'a' }] }, /users\[0\] has the key "tag", allowed are name, os_users/],
    [{ users: [{ ...USER, name: 'two words' }] }, /users\[0\]\.name: got "two words", allowed are 1 to 64 of/],
    [{ users: [{ ...USER, tags: [''] }] }, /users\[0\]\.tags: got "", allowed is text of 1 to 128 characters$/],
    [{ users: [{ ...USER, tags: undefined }] }, /users\[0\]\.tags: got undefined, allowed is a list/],
    [
      { users: [{ ...USER, rights: ['admin'] }] },
      /rights: got "admin", allowed is one of read, write, clear, pin, status, drain$/,
    ],
    [{ users: [{ ...USER, token_sha256: ['token'] }] }, /token_sha256: got "token", allowed is 64 hexadecimal digits/],
    [{ users: [{ ...USER, redis_tag: 'b' }] }, /redis_tag: got "b", allowed is a tag that its tags allow$/],
    [{ users: [USER, { ...USER }] }, /two users have the same name: a$/],
    [
      { users: [{ ...USER, token_sha256: [DIGEST] }, userNamed('b', { token_sha256: [DIGEST] })] },
      /two users have the same token_sha256/,
    ],
    [
      { users: [{ ...USER, os_users: [7] }, userNamed('b', { os_users: ['7'] })] },
      /two users have the same os_users: 7$/,
    ],
    ...['', null, true, [], -1, 1.5, 65_534, '65534', 2 ** 32].map(
      (user) =>
        [
          { users: [{ ...USER, os_users: [user] }] },
          /os_users: got .*, allowed is the name or the number of a user/,
        ] as const,
    ),
    [
      { users: [{ ...USER, os_users: ['nobody-of-this-name'] }] },
      /there is no user "nobody-of-this-name" in \/etc\/passwd/,
    ],
  ];
  for (const [content, problem] of wrong) {
    file.writeText(JSON.stringify(content));
    const error = t.throws(
      () => readUsersFile(file.path, systemFiles),
      { code: 'ERR_CONFIG' },
      JSON.stringify(content),
    );
    t.regex(error?.message ?? '', problem);
    t.true(error?.message.startsWith(`configuration key "users_file": ${file.path} `));
    await t.throwsAsync(readUsersFileAgain(file.path, systemFiles), { message: error?.message ?? '' });
  }
  file.writeText('{');
  t.throws(() => readUsersFile(file.path, systemFiles), { message: /is no JSON/ });
  file.remove();
  t.throws(() => readUsersFile(file.path, systemFiles), { message: /cannot be read \(ENOENT\)/ });
});

test('users file: the example of docs/tenants.md is one', (t) => {
  const [, example = ''] = /```json\n(.*?)```/s.exec(readFileSync('docs/tenants.md', 'utf8')) ?? [];
  const file = new UsersFile(t);
  file.writeText(example);
  const [user] = readUsersFile(file.path, systemFiles);
  t.like(user, { name: 'team-a', uids: [1001], tags: ['team-a', 'team-a/*'] });
});

test('users file: one that every user of the machine can change is refused', (t) => {
  const file = new UsersFile(t, USER);
  chmodSync(file.path, 0o664);
  t.is(readUsersFile(file.path, systemFiles).length, 1);
  chmodSync(file.path, 0o646);
  t.throws(() => readUsersFile(file.path, systemFiles), {
    message: /can be changed by every user of this machine; chmod o-w$/,
  });
});

test('users: a token counts before the user of the process, and the default is who shows neither', (t) => {
  const file = new UsersFile(
    t,
    userNamed('a', { os_users: ['root', 1000], tags: ['a*'], redis_tag: 'a-redis' }),
    userNamed('b', { token_sha256: [DIGEST, digestOf('later')], tags: ['x', 'y/*'] }),
  );
  const users = new Users(readUsersFile(file.path, systemFiles));
  const nameOf = (proof: Parameters<Users['identify']>[0]) => users.identify(proof)?.name;
  t.deepEqual(
    [nameOf({ uid: 0 }), nameOf({ uid: 1000 }), nameOf({ uid: 1 }), nameOf({})],
    ['a', 'a', undefined, undefined],
  );
  t.is(nameOf({ uid: 0, tokenDigest: DIGEST }), 'b');
  t.is(nameOf({ uid: 0, tokenDigest: digestOf('later') }), 'b');
  t.is(nameOf({ uid: 0, tokenDigest: digestOf('wrong') }), undefined, 'a wrong token is nobody');
  const identity = users.identify({ uid: 1000 });
  t.deepEqual([...(identity?.user?.rights ?? [])], [...RIGHTS]);
  const [a, b] = users.reveal();
  t.deepEqual(
    ['', 'a', 'ab', 'b'].map((tag) => a?.mayUse(tag)),
    [false, true, true, false],
  );
  t.deepEqual([a?.redisTag('redis'), b?.redisTag('redis'), b?.redisTag('y/1')], ['a-redis', 'x', 'y/1']);
  file.write(userNamed('c', { os_users: [1000] }), userNamed('default', { tags: ['*'] }));
  users.renew(readUsersFile(file.path, systemFiles));
  t.is(identity?.user, undefined, 'its process is of another user now');
  t.is(nameOf({ uid: 0 }), 'default');
  t.true(users.reveal()[1]?.mayUse(''));
});
