import { mkdirSync, writeFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type ControlGroupPaths, commandPoolBytes, ownMemory } from '../../src/system/memory-limit.js';
import { temporaryFolder } from '../_support/disk/mounts.js';

const MIB = 2 ** 20;

/** A file system of control groups with these files; `own` is what the kernel says of the groups of the process. */
function groups(t: ExecutionContext, own: string, files: Readonly<Record<string, string>>): ControlGroupPaths {
  const at = temporaryFolder(t);
  const paths = { own: join(at, 'own'), mount: join(at, 'mount') };
  writeFileSync(paths.own, own);
  for (const [name, text] of Object.entries(files)) {
    const path = join(paths.mount, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return paths;
}

test('memory limit: that of a group of version 2, or of one above it; memory of files can be taken back', (t) => {
  const inContainer = groups(t, '0::/\n', {
    'memory.max': `${64 * MIB}\n`,
    'memory.current': `${24 * MIB}\n`,
    'memory.stat': `anon 100\ninactive_file ${16 * MIB}\nactive_file 7\n`,
  });
  t.deepEqual(ownMemory(inContainer), { totalBytes: 64 * MIB, freeBytes: 56 * MIB });
  t.is(commandPoolBytes(inContainer), 64 * MIB);
  t.is(commandPoolBytes(groups(t, '', {})), Math.min(4096 * MIB, totalmem()));
  const nested = groups(t, '0::/pods/pod-1/node\n', {
    'memory.max': 'max\n',
    'pods/pod-1/memory.max': `${32 * MIB}\n`,
    'pods/pod-1/memory.current': `${33 * MIB}\n`,
    'pods/pod-1/node/memory.max': `${48 * MIB}\n`,
    'pods/pod-1/node/memory.current': `${10 * MIB}\n`,
  });
  t.deepEqual(ownMemory(nested), { totalBytes: 32 * MIB, freeBytes: 0 });
});

test('memory limit: that of a group of version 1, also where only the own group is mounted', (t) => {
  const none = '9223372036854771712\n';
  const own = '9:name=systemd:/\n4:cpu,memory:/pods/pod-1\n3:cpuset:/\n0::/\n';
  const files = {
    'memory.limit_in_bytes': `${64 * MIB}\n`,
    'memory.usage_in_bytes': `${24 * MIB}\n`,
    'memory.stat': `inactive_file 5\ntotal_inactive_file ${8 * MIB}\n`,
  };
  const entries = (at: string) => Object.fromEntries(Object.entries(files).map(([name, text]) => [at + name, text]));
  const above = { 'memory/memory.limit_in_bytes': none };
  const whole = groups(t, own, { ...above, ...entries('memory/pods/pod-1/') });
  t.deepEqual(ownMemory(whole), { totalBytes: 64 * MIB, freeBytes: 48 * MIB });
  t.deepEqual(ownMemory(groups(t, own, entries('memory/'))), { totalBytes: 64 * MIB, freeBytes: 48 * MIB });
  t.is(ownMemory(groups(t, own, above)).totalBytes, totalmem());
});

test('memory limit: without groups, or without a limit, it is that of the machine', (t) => {
  const at = temporaryFolder(t);
  t.is(ownMemory({ own: join(at, 'none'), mount: at }).totalBytes, totalmem());
  t.is(ownMemory(groups(t, '0::/a\n', { 'a/memory.max': 'max\n' })).totalBytes, totalmem());
  t.is(ownMemory(groups(t, 'nonsense\n\n4:memory\n', {})).totalBytes, totalmem());
  const own = ownMemory();
  t.true(own.freeBytes > 0 && own.freeBytes <= own.totalBytes);
});
