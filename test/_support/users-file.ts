import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { digestOf, RIGHTS, type Right } from '../../src/net/users.js';
import { folder } from './clients/client-fixture.js';

/** The token of a user of this name. */
export const tokenOf = (name: string): string => `the token of ${name}`.replaceAll(' ', '-');

/** A user of a table with a token, a tag of its own and all rights. */
export function userNamed(name: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { name, token_sha256: [digestOf(tokenOf(name))], tags: [name], rights: RIGHTS, ...more };
}

/** All rights but some. */
export function rightsBut(...rights: (Right | undefined)[]): readonly Right[] {
  return RIGHTS.filter((right) => !rights.includes(right));
}

/** A file of users that a test changes. */
export class UsersFile {
  readonly path: string;

  constructor(t: ExecutionContext, ...users: readonly unknown[]) {
    this.path = join(folder(t), 'users.json');
    this.write(...users);
  }

  write(...users: readonly unknown[]): void {
    this.writeText(JSON.stringify({ users }));
  }

  writeText(text: string): void {
    writeFileSync(this.path, text);
  }

  remove(): void {
    rmSync(this.path);
  }
}
