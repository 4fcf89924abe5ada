import { isUtf8 } from 'node:buffer';
import type { Files } from '../base/environment/files.js';
import type { ConfigError } from '../base/errors.js';
import { NAMESPACE_TAG_MAX_CHARACTERS } from '../base/limits.js';
import { describeValue, toNumber } from '../base/settings/fields.js';
import { fileFault, readNamedFile, readNamedFileAgain } from '../base/settings/named-file.js';
import { RIGHTS, type Right, User } from './users.js';

const KEY = 'users_file';
/** Limits of a users file: its bytes, its users, and the entries of each list of a user. */
const USERS_FILE_MAX_BYTES = 1 << 20;
const USERS_MAX_COUNT = 1024;
const USER_LIST_MAX_COUNT = 64;
/**
 * The uid that the kernel reports for users that it cannot name here, such as those of other containers. It does not
 * identify a user.
 */
const OVERFLOW_UID = 65_534;
const UID_MAX = 2 ** 32 - 2;
const ACCOUNTS = '/etc/passwd';
const NAME = /^[A-Za-z0-9._\-:@/]{1,64}$/;
const DIGEST = /^[0-9a-f]{64}$/;
const FIELDS: ReadonlySet<string> = new Set(['name', 'os_users', 'token_sha256', 'tags', 'redis_tag', 'rights']);

/** Reads the users in the JSON file at `path` when a node starts. Throws `ConfigError`, which says what is wrong. */
export function readUsersFile(path: string, files: Files): readonly User[] {
  const bytes = readNamedFile(KEY, path, files);
  return usersIn(path, bytes, () => accountsOf(files));
}

/** Reads the file while the node runs. Rejects as {@link readUsersFile} throws. */
export async function readUsersFileAgain(path: string, files: Files): Promise<readonly User[]> {
  const bytes = await readNamedFileAgain(KEY, path, files);
  const accounts = await files.readFile(ACCOUNTS).catch(() => Buffer.alloc(0));
  return usersIn(path, bytes, () => accounts);
}

/** Returns the accounts of this machine; empty in a container without that file. */
function accountsOf(files: Files): Buffer {
  try {
    return files.readFileSync(ACCOUNTS);
  } catch {
    return Buffer.alloc(0);
  }
}

function usersIn(path: string, bytes: Buffer, accounts: () => Buffer): readonly User[] {
  if (bytes.length > USERS_FILE_MAX_BYTES)
    throw fault(path, `has ${bytes.length} bytes, allowed are ${USERS_FILE_MAX_BYTES}`);
  const { users, ...rest } = objectOf(path, 'the file', parsed(path, bytes));
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw fault(path, `has the key ${JSON.stringify(unknown)}, allowed is users`);
  const entries = listOf(path, 'users', users, USERS_MAX_COUNT);
  const uids = new HostUsers(path, accounts);
  const table = entries.map((entry, i) => userOf(path, { entry, at: `users[${i}]`, uids }));
  checkDistinct(
    path,
    'name',
    table.map(({ name }) => [name]),
  );
  checkDistinct(
    path,
    'os_users',
    table.map((user) => user.uids),
  );
  checkDistinct(
    path,
    'token_sha256',
    table.map(({ tokenDigests }) => tokenDigests),
  );
  return table;
}

function parsed(path: string, bytes: Buffer): unknown {
  try {
    if (!isUtf8(bytes)) throw new Error('not UTF-8');
    return JSON.parse(bytes.toString());
  } catch (cause) {
    throw fault(path, `is no JSON (${(cause as Error).message}); docs/tenants.md has an example`, cause);
  }
}

function userOf(
  path: string,
  { entry, at, uids }: { readonly entry: unknown; readonly at: string; readonly uids: HostUsers },
): User {
  const fields = objectOf(path, at, entry);
  const unknown = Object.keys(fields).find((key) => !FIELDS.has(key));
  if (unknown !== undefined) {
    throw fault(path, `${at} has the key ${JSON.stringify(unknown)}, allowed are ${[...FIELDS].join(', ')}`);
  }
  const { name, os_users: osUsers = [], token_sha256: digests = [], tags, redis_tag: redisTag, rights } = fields;
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw fault(path, `${at}.name: got ${describeValue(name)}, allowed are 1 to 64 of A-Z a-z 0-9 . _ - : @ /`);
  }
  const list = (key: string, value: unknown, allowed: string, isRight: (text: string) => boolean): string[] =>
    listOf(path, `${at}.${key}`, value, USER_LIST_MAX_COUNT).map((text) => {
      if (typeof text === 'string' && isRight(text)) return text;
      throw fault(path, `${at}.${key}: got ${describeValue(text)}, allowed is ${allowed}`);
    });
  const user = new User({
    name,
    uids: listOf(path, `${at}.os_users`, osUsers, USER_LIST_MAX_COUNT).map((user) => uids.of(`${at}.os_users`, user)),
    tokenDigests: list(
      'token_sha256',
      digests,
      '64 hexadecimal digits 0-9 a-f, as `meshcache token` prints them',
      (text) => DIGEST.test(text),
    ),
    tags: list('tags', tags, `text of 1 to ${NAMESPACE_TAG_MAX_CHARACTERS} characters`, isTag),
    rights: list('rights', rights, `one of ${RIGHTS.join(', ')}`, (text) => RIGHTS.includes(text as Right)) as Right[],
    redisTag: redisTag === undefined ? undefined : (redisTag as string),
  });
  if (redisTag === undefined || (typeof redisTag === 'string' && user.mayUse(redisTag))) return user;
  throw fault(path, `${at}.redis_tag: got ${describeValue(redisTag)}, allowed is a tag that its tags allow`);
}

function isTag(text: string): boolean {
  return text !== '' && text.length <= NAMESPACE_TAG_MAX_CHARACTERS && text.isWellFormed();
}

/** Resolves users of this machine, given by number or by a name in /etc/passwd, to their uids. */
class HostUsers {
  readonly #path: string;
  readonly #read: () => Buffer;
  #lines: readonly string[][] | undefined;

  constructor(path: string, read: () => Buffer) {
    this.#path = path;
    this.#read = read;
  }

  of(at: string, user: unknown): number {
    const isName = typeof user === 'string' && !/^\d*$/.test(user);
    const uid = isName ? this.#named(at, user) : toNumber(user);
    if (Number.isInteger(uid) && uid >= 0 && uid <= UID_MAX && uid !== OVERFLOW_UID) return uid;
    throw fault(
      this.#path,
      `${at}: got ${describeValue(user)}, allowed is the name or the number of a user of this machine, and not ${OVERFLOW_UID}, which stands for all users that the kernel cannot name here`,
    );
  }

  #named(at: string, name: string): number {
    this.#lines ??= this.#read()
      .toString()
      .split('\n')
      .map((line) => line.split(':'));
    const line = this.#lines.find(([each]) => each === name);
    if (line !== undefined) return Number(line[2]);
    throw fault(
      this.#path,
      `${at}: there is no user ${JSON.stringify(name)} in ${ACCOUNTS}; give a name from there, or a number`,
    );
  }
}

function objectOf(path: string, at: string, value: unknown): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw fault(path, `${at}: got ${describeValue(value)}, allowed is a mapping`);
}

function listOf(path: string, at: string, value: unknown, maxCount: number): unknown[] {
  if (Array.isArray(value) && value.length <= maxCount) return value;
  const got = Array.isArray(value) ? `${value.length} entries` : describeValue(value);
  throw fault(path, `${at}: got ${got}, allowed is a list of at most ${maxCount}`);
}

/** Throws if two users share a value that must identify one user. */
function checkDistinct(path: string, key: string, lists: readonly (readonly (string | number)[])[]): void {
  const known = new Set<string | number>();
  for (const values of lists) {
    for (const value of new Set(values)) {
      if (known.has(value)) throw fault(path, `two users have the same ${key}: ${value}`);
      known.add(value);
    }
  }
}

function fault(path: string, problem: string, cause?: unknown): ConfigError {
  return fileFault(KEY, path, problem, cause);
}
