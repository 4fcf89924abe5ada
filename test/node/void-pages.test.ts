import test from 'ava';
import type { LogLevel } from '../../src/base/environment/log.js';
import { DiskError } from '../../src/base/errors.js';
import { Signal } from '../../src/base/signal.js';
import type { NodeDirectory } from '../../src/node/upkeep/node-directory.js';
import { VoidPages } from '../../src/node/upkeep/void-pages.js';

for (const [what, failure, isLogged] of [
  ['that the disk cannot record', new DiskError('removed pages cannot be recorded'), false],
  ['of a broken program', new Error('broken'), true],
] as const) {
  test(`void pages: the dropping of outdated pages ${what}`, async (t) => {
    // Cause: the owners of pages whose removal a read-only disk could not record went on listing them, and an error was
    // logged once more.
    const deleted: string[] = [];
    const logged: [LogLevel, string][] = [];
    let dropping: Promise<void> | undefined;
    const outdated = new Signal<[keys: readonly string[], versions: readonly number[]]>();
    const directory = {
      changed: new Signal(),
      dropping: (dropped: Promise<void>) => {
        dropping = dropped;
      },
      client: { outdated, delete: async (keys: readonly string[]) => void deleted.push(...keys) },
    } as unknown as NodeDirectory;
    const pages = {
      drop: async () => Promise.reject(failure),
      locationsOf: (keys: readonly string[]) => keys.map(() => null),
    } as unknown as ConstructorParameters<typeof VoidPages>[0]['pages'];
    const log = { log: (level: LogLevel, message: string) => void logged.push([level, message]) };
    new VoidPages({ directory, pages, dropCleared: async () => {}, log });
    outdated.tell(['a', 'b'], [1, 2]);
    await dropping;
    t.deepEqual(deleted, isLogged ? [] : ['a', 'b']);
    t.deepEqual(logged, isLogged ? [['error', 'dropping outdated pages failed']] : []);
  });
}
