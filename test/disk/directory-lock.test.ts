import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import type { Network } from '../../src/base/environment/network.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { DiskError } from '../../src/base/errors.js';
import { DirectoryLock } from '../../src/disk/folder/directory-lock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { until } from '../_support/support.js';

const PROGRAM = fileURLToPath(new URL('./disk-directory-lock-program.js', import.meta.url));
const MUCH = '2m';
const env = systemEnvironment();

interface Contender {
  readonly child: ChildProcess;
  /** What it says first: `held`, or why not. */
  readonly said: Promise<string>;
}

function start(t: ExecutionContext, command: readonly string[]): Contender {
  const [program, ...args] = command as [string, ...string[]];
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  const said = once(createInterface(child.stdout), 'line').then(([line]) => line as string);
  return { child, said };
}

function hold(t: ExecutionContext, folder: string, nodeId: string): Contender {
  return start(t, [process.execPath, PROGRAM, 'hold', folder, nodeId]);
}

async function killed({ child }: Contender): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

/** Takes and gives back. */
async function isFree(folder: string): Promise<boolean> {
  try {
    await (await DirectoryLock.acquire(folder, { nodeId: 'prober', env })).release();
    return true;
  } catch (error) {
    if (error instanceof DiskError) return false;
    throw error;
  }
}

test('directory lock: another process is refused, and told who has it', async (t) => {
  const folder = temporaryFolder(t);
  const holder = hold(t, folder, 'node-a');
  t.is(await holder.said, 'held');
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'node-b', env }), {
    instanceOf: DiskError,
    message: new RegExp(`is in use by process ${holder.child.pid} \\(node node-a\\): .* set another disk_path`),
  });
  holder.child.stdin?.end();
  await once(holder.child, 'exit');
  t.true(await isFree(folder));
  t.deepEqual(readdirSync(join(folder, 'lock')), []);
});

test('directory lock: the same process is refused, until it has been released', async (t) => {
  const folder = temporaryFolder(t);
  const lock = await DirectoryLock.acquire(folder, { nodeId: 'one', env });
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'two', env }), {
    message: new RegExp(`process ${process.pid} \\(node one\\)`),
  });
  t.is(lock.release(), lock.release());
  await lock.release();
  t.true(await isFree(folder));
});

test('directory lock: what a killed process has left is taken over at once', async (t) => {
  const folder = temporaryFolder(t);
  for (let round = 0; round < 5; round++) {
    const holder = hold(t, folder, 'doomed');
    t.is(await holder.said, 'held');
    await killed(holder);
    t.is(readdirSync(join(folder, 'lock')).length, 2);
    const startMs = performance.now();
    t.true(await isFree(folder));
    t.log(`${Math.round(performance.now() - startMs)} ms`);
    t.deepEqual(readdirSync(join(folder, 'lock')), []);
  }
});

test('directory lock: a stopped process has it still', async (t) => {
  const folder = temporaryFolder(t);
  const holder = hold(t, folder, 'stopped');
  t.is(await holder.said, 'held');
  holder.child.kill('SIGSTOP');
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'b', env }), {
    instanceOf: DiskError,
    message: new RegExp(`in use by process ${holder.child.pid} \\(node stopped\\)`),
  });
  holder.child.kill('SIGCONT');
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'b', env }), { message: /node stopped/ });
});

test('directory lock: of 20 processes that want it at once exactly one gets it, also when one was killed before', async (t) => {
  t.timeout(120_000, MUCH);
  const folder = temporaryFolder(t);
  for (let round = 0; round < 3; round++) {
    const contenders = Array.from({ length: 20 }, (_, i) => hold(t, folder, `node-${i}`));
    const said = await Promise.all(contenders.map((contender) => contender.said));
    t.is(said.filter((text) => text === 'held').length, 1, said.join('\n'));
    const winner = contenders[said.indexOf('held')] as Contender;
    const refusal = new RegExp(`in use by process ${winner.child.pid} \\(node node-\\d+\\)`);
    for (const text of said.filter((line) => line !== 'held')) t.regex(text, refusal);
    await Promise.all(
      contenders.map((contender) => (contender === winner ? killed(winner) : contender.child.stdin?.end())),
    );
  }
  t.true(await isFree(folder));
  t.deepEqual(readdirSync(join(folder, 'lock')), []);
});

test.serial('directory lock: of 20 in one process that want it at once exactly one gets it, every time', async (t) => {
  t.timeout(120_000, MUCH);
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const folder = temporaryFolder(t);
  for (let round = 0; round < 20; round++) {
    const contend = async (i: number): Promise<DirectoryLock> => {
      await sleep(random.u32() % 8);
      return DirectoryLock.acquire(folder, { nodeId: `node-${i}`, env: { ...env, random } });
    };
    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, (_, i) => contend(i)));
    const held = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    t.is(held.length, 1);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected')
        t.regex((outcome.reason as Error).message, /in use by process \d+ \(node node-\d+\)/);
    }
    await held[0]?.release();
  }
  t.deepEqual(readdirSync(join(folder, 'lock')), []);
});

test('directory lock: never two at a time, while processes come, go and are killed', async (t) => {
  t.timeout(120_000, MUCH);
  const folder = temporaryFolder(t);
  const log = join(folder, 'log');
  writeFileSync(log, '');
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const begin = (): Contender => start(t, [process.execPath, PROGRAM, 'churn', folder, log]);
  const contenders = Array.from({ length: 5 }, begin);
  for (const { said } of contenders) said.catch(() => {});
  const lines = (): string[] => readFileSync(log, 'utf8').trim().split('\n');
  for (let round = 0; round < 15; round++) {
    const before = lines().length;
    await until(() => lines().length > before + 5 + (random.u32() % 10));
    const [victim] = contenders.splice(random.u32() % contenders.length, 1) as [Contender];
    await killed(victim);
    contenders.push(begin());
  }
  await Promise.all(contenders.map(killed));
  const all = lines();
  t.log(`${all.length} lines`);
  let inside: string | undefined;
  all.forEach((line, i) => {
    const [verb, id] = line.split(' ') as [string, string];
    if (verb === 'enter') {
      if (inside !== undefined)
        t.false(all.slice(i).includes(`leave ${inside}`), `${inside} was there when ${id} came`);
      inside = id;
    } else {
      t.true(inside === id, `${id} left, and ${inside} was there`);
      inside = undefined;
    }
  });
  t.true(await isFree(folder));
});

const unshared = ['unshare', '--net', '--pid', '--ipc', '--uts', '--mount', '--fork', '--mount-proc'];
const hasNamespaces = spawnSync('unshare', [...unshared.slice(1), 'true']).status === 0;
const withNamespaces = hasNamespaces ? test : test.skip;

withNamespaces(
  `directory lock: holds between containers${hasNamespaces ? '' : ' (skipped: no namespaces can be made)'}`,
  async (t) => {
    const folder = temporaryFolder(t);
    const command = [...unshared, process.execPath, PROGRAM, 'hold', folder];
    const first = start(t, [...command, 'inside']);
    t.is(await first.said, 'held');
    t.regex(await start(t, [...command, 'other']).said, /in use by process 1 \(node inside\)/);
    t.regex(await hold(t, folder, 'outside').said, /in use by process 1 \(node inside\)/);
    first.child.stdin?.end();
    await once(first.child, 'exit');
    t.is(await start(t, [...command, 'other']).said, 'held');
  },
);

test('directory lock: does not keep its process alive', async (t) => {
  const folder = temporaryFolder(t);
  const { child, said } = start(t, [process.execPath, PROGRAM, 'forget', folder, 'forgetful']);
  const exited = once(child, 'exit');
  t.is(await said, 'held');
  t.deepEqual(await exited, [0, null]);
  t.true(await isFree(folder));
});

test('directory lock: a path longer than an address of a socket', async (t) => {
  const folder = join(temporaryFolder(t), 'x'.repeat(100), 'ü'.repeat(100));
  mkdirSync(folder, { recursive: true });
  const lock = await DirectoryLock.acquire(folder, { nodeId: 'deep', env });
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'b', env }), { message: /node deep/ });
  await lock.release();
  t.true(await isFree(folder));
});

test('directory lock: one that is being made, and dies before it listens, is in nobody’s way', async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'lock'));
  writeFileSync(join(folder, 'lock', 'new-1234-0123456789abcdef'), '');
  writeFileSync(join(folder, 'lock', '1234-0123456789abcdef.owner'), '');
  writeFileSync(join(folder, 'lock', 'note'), 'not ours');
  t.true(await isFree(folder));
  t.deepEqual(readdirSync(join(folder, 'lock')), ['note']);
});

test('directory lock: where there are no symbolic links, as on hugetlbfs, another process is refused, too', async (t) => {
  const folder = temporaryFolder(t);
  const symlink = async (): Promise<never> => {
    throw Object.assign(new Error('EINVAL: invalid argument, symlink'), { code: 'EINVAL' });
  };
  const lock = await DirectoryLock.acquire(folder, {
    nodeId: 'huge',
    env: { ...env, files: { ...env.files, symlink } },
  });
  const message = `${folder} is in use by process ${process.pid}: each node needs a directory of its own; set another disk_path, or stop that process`;
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'b', env }), { instanceOf: DiskError, message });
  await lock.release();
  t.deepEqual(readdirSync(join(folder, 'lock')), []);
  t.true(await isFree(folder));
});

test('directory lock: where there can be no sockets, or no folder, it says so', async (t) => {
  const folder = temporaryFolder(t);
  const refusing: Network = {
    connect: (options) => net.connect(options),
    createServer() {
      const server = net.createServer();
      server.listen = () => {
        const error = Object.assign(new Error('listen EOPNOTSUPP'), { code: 'EOPNOTSUPP' });
        process.nextTick(() => server.emit('error', error));
        return server;
      };
      return server;
    },
  };
  const message = /cannot be locked: listen EOPNOTSUPP; the lock is a Unix socket in it: set a disk_path on a local/;
  await t.throwsAsync(DirectoryLock.acquire(folder, { nodeId: 'a', env: { ...env, network: refusing } }), {
    instanceOf: DiskError,
    message,
  });
  t.true(await isFree(folder));
  const other = temporaryFolder(t);
  writeFileSync(join(other, 'lock'), 'a file');
  await t.throwsAsync(DirectoryLock.acquire(other, { nodeId: 'a', env }), {
    instanceOf: DiskError,
    message: /cannot be locked: EEXIST/,
  });
});
