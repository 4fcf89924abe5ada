import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { type ExecutionContext } from 'ava';
import type { MeshCacheClient, MeshCacheClientOptions } from '../../src/client/meshcache-client.js';
import { firstLine, startCli } from '../_support/cli/run-cli.js';
import { attach } from '../_support/client/attached-nodes.js';
import { folder } from '../_support/clients/client-fixture.js';
import { PYTHON, succeeds } from '../_support/python.js';
import { commandOf, RawClient } from '../_support/resp/resp-fixture.js';
import { freePort, freeze, PATIENCE_MS, until } from '../_support/support.js';

/*
 * Cause: a call that had waited for a node that was stopped was carried out when the node went on, after its caller had been told that it is not
 * done, and became the newest: older than what others had set since, it won, and deleted keys came back.
 */

const NODES = 3;
const KEYS = 8;
/** Less than a node that is dropped is away. */
const CALLER_TIMEOUT_MS = 1_000;
/** Longer than Redis clients are believed to wait, and than callers do. */
const STOPPED_MIN_MS = 3_500;
const GIVEN_UP = 'given up';

const keysOf = (name: string) => Array.from({ length: KEYS }, (_, i) => `${name}-${i}`);
const OVERWRITTEN = keysOf('overwritten');
const DELETED = keysOf('deleted');
const KEPT = keysOf('kept');
const OWN = keysOf('own');
const bytes = (text: string) => Uint8Array.from(Buffer.from(text));

interface Node {
  readonly child: ChildProcess;
  readonly clientSocket: string;
  readonly respSocket: string;
}

/**
 * Sets OVERWRITTEN and DELETED to GIVEN_UP, deletes KEPT and clears, all at once, and resolves when each call has been
 * given up.
 */
type GiveUp = () => Promise<void>;

async function startNodes(t: ExecutionContext): Promise<Node[]> {
  const port = await freePort();
  const path = folder(t);
  return Promise.all(
    Array.from({ length: NODES }, async (_, i) => {
      const [clientSocket, respSocket] = [join(path, `node-${i}.sock`), join(path, `resp-${i}.sock`)];
      const settings = {
        local_hostname: `127.0.0.${i + 1}`,
        node_id: `node-${i}`,
        resp_socket: respSocket,
        heartbeat_interval: '0.2',
        member_ttl: '1',
        metrics_enabled: 'false',
        protocol: 'tcp',
      };
      const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
      const where = ['--discovery-addr', `127.0.0.1:${port}`, '--client-socket', clientSocket];
      const child = startCli(['node', ...where, '--pool', '16mb', '--json', ...options]);
      t.teardown(() => void child.kill('SIGKILL'));
      child.stderr?.resume();
      await firstLine(child);
      return { child, clientSocket, respSocket };
    }),
  );
}

async function textOf(client: MeshCacheClient, key: string): Promise<string | null> {
  const found = await client.get(key);
  return found === null ? null : Buffer.from(found).toString();
}

/** Waits until each of these keys has this text on all nodes. */
async function untilAllRead(clients: readonly MeshCacheClient[], keys: readonly string[], text: string) {
  for (const client of clients) {
    for (const key of keys) await until(async () => (await textOf(client, key)) === text);
  }
}

async function setAll(client: MeshCacheClient, keys: readonly string[], text: string): Promise<void> {
  for (const key of keys) await until(() => client.set(key, bytes(text)));
}

/**
 * Stops a node while a program calls it, and lets it go on when the others have set and deleted the same keys since.
 */
async function check(
  t: ExecutionContext,
  begin: (node: Node) => Promise<GiveUp>,
  options: MeshCacheClientOptions = {},
): Promise<void> {
  t.timeout(4 * PATIENCE_MS);
  const nodes = await startNodes(t);
  const clients = await Promise.all(nodes.map(({ clientSocket }) => attach(t, clientSocket, options)));
  const [stopped, others] = [nodes.at(-1) as Node, clients.slice(0, -1)];
  const [own, other] = [clients.at(-1), others[0]] as [MeshCacheClient, MeshCacheClient];
  await setAll(other, [...OVERWRITTEN, ...DELETED], 'before');
  await setAll(other, KEPT, 'kept');
  await setAll(own, OWN, 'own');
  await untilAllRead(clients, OWN, 'own');
  const giveUp = await begin(stopped);
  await freeze(stopped.child);
  const sinceMs = performance.now();
  await giveUp();
  await setAll(other, OVERWRITTEN, 'newest');
  // True when the stopped node is no member any more.
  for (const key of DELETED) await until(async () => (await other.delete([key]))[0] === true);
  await until(() => performance.now() - sinceMs > STOPPED_MIN_MS);
  stopped.child.kill('SIGCONT');
  // What was called before has been carried out by now, if at all.
  for (const key of keysOf('later')) {
    // A page that is set while the node joins again may be lost.
    await until(async () => {
      if (!(await own.set(key, bytes('later')))) return false;
      const found = await Promise.all(clients.map((client) => textOf(client, key)));
      return found.every((text) => text === 'later');
    });
  }
  for (const client of clients) {
    for (const key of OVERWRITTEN) t.not(await textOf(client, key), GIVEN_UP, key);
    for (const key of DELETED) t.is(await textOf(client, key), null, key);
  }
  // Those that hold them have them; for others a cache may have lost where they are.
  await untilAllRead([other], OVERWRITTEN, 'newest');
  await untilAllRead([other], KEPT, 'kept');
  await untilAllRead([own], OWN, 'own');
}

test.serial('given-up calls: those of a MeshCacheClient to a stopped node have no effect when it goes on', (t) =>
  check(t, async ({ clientSocket }) => {
    const client = await attach(t, clientSocket, { timeoutMs: CALLER_TIMEOUT_MS });
    return async () => {
      const cleared = client.clear().then(
        () => true,
        () => false,
      );
      const set = [...OVERWRITTEN, ...DELETED].map((key) => client.set(key, bytes(GIVEN_UP)));
      const deleted = client.delete(KEPT);
      t.deepEqual(new Set([await cleared, ...(await Promise.all(set)), ...(await deleted)]), new Set([false]));
    };
  }),
);

const noPython = succeeds(PYTHON, '-c', 'import sys; sys.exit(sys.version_info < (3, 10))')
  ? ''
  : ' (skipped: no python3)';
(noPython === '' ? test.serial : test.skip)(
  `given-up calls: those of a Python client to a stopped node have no effect when it goes on${noPython}`,
  (t) =>
    check(t, async ({ clientSocket: socket }) => {
      const calls = { set: [...OVERWRITTEN, ...DELETED], deleted: KEPT, value: GIVEN_UP };
      const options = JSON.stringify({ socket, timeoutMs: CALLER_TIMEOUT_MS, ...calls });
      const child = spawn(PYTHON, ['test/python/given_up.py', options], { stdio: ['pipe', 'pipe', 'inherit'] });
      t.teardown(() => void child.kill('SIGKILL'));
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      t.is((await lines.next()).value, 'ready');
      return async () => {
        child.stdin.write('\n');
        const results = JSON.parse((await lines.next()).value ?? '[]') as boolean[];
        t.deepEqual(new Set(results), new Set([false]));
      };
    }),
);

for (const [title, closes] of [
  ['that ends its connection', true],
  ['that keeps its connection', false],
] as const) {
  test.serial(`given-up calls: those of a Redis client ${title} have no effect when the node goes on`, (t) => {
    const begin = async ({ respSocket: path }: Node): Promise<GiveUp> => {
      const clients = await Promise.all([1, 2, 3].map(() => RawClient.connect(t, { path })));
      const [setter, deleter, clearer] = clients as [RawClient, RawClient, RawClient];
      return async () => {
        const sinceMs = performance.now();
        for (const key of [...OVERWRITTEN, ...DELETED]) setter.send(commandOf('SET', key, GIVEN_UP));
        deleter.send(commandOf('DEL', ...KEPT));
        clearer.send(commandOf('FLUSHALL'));
        await until(() => performance.now() - sinceMs > CALLER_TIMEOUT_MS);
        for (const client of clients) {
          t.is(client.bytes, 0);
          if (closes) client.socket.destroy();
        }
      };
    };
    return check(t, begin, { namespace: { tag: 'redis' } });
  });
}
