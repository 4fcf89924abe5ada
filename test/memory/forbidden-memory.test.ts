// Where a profile forbids memfd_create, shared memory failed with "cannot allocate 4096 bytes", as if there were none.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { collect, firstLine, startCli } from '../_support/cli/run-cli.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { addon } from '../_support/native/addon.js';
import { forbiddingMissing, withoutMemoryFiles } from '../_support/native/forbidden-calls.js';
import { run } from '../_support/python.js';
import { freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const EPERM = 1;
const EACCES = 13;
const ENOSYS = 38;
const PROGRAM = fileURLToPath(new URL('./memory-allocate-program.js', import.meta.url));
const PYTHON_CLIENT = fileURLToPath(new URL('../../src/python', import.meta.url));

const test = unless(addon === null ? 'no addon' : forbiddingMissing);

test('forbidden memory: the error of a region says which call is forbidden, and what to do', (t) => {
  for (const [errno, code] of [
    [EPERM, 'EPERM'],
    [EACCES, 'EACCES'],
    [ENOSYS, 'ENOSYS'],
  ] as const) {
    const [program, ...args] = withoutMemoryFiles(errno);
    const said = execFileSync(program, [...args, process.execPath, PROGRAM], { encoding: 'utf8' });
    t.regex(said, new RegExp(`memfd_create is forbidden \\(${code}\\).*seccomp.*without \`shared\``));
  }
});

test('forbidden memory: a node serves its clients by their socket, and its log says why', async (t) => {
  const socket = join(temporaryFolder(t), 'socket');
  const options = [`client_socket=${socket}`, 'protocol=tcp', 'metrics_port=0', 'local_hostname=127.0.0.1'];
  const node = startCli(
    [
      'node',
      '--discovery-addr',
      `127.0.0.1:${await freePort()}`,
      '--pool',
      '16mb',
      ...options.flatMap((o) => ['-o', o]),
    ],
    { under: withoutMemoryFiles(EPERM), env: { MESHCACHE_LOG: 'info' } },
  );
  t.teardown(() => void node.kill('SIGKILL'));
  let log = '';
  node.stderr?.on('data', (text: Buffer) => {
    log += text.toString();
  });
  await firstLine(node);
  const script = `
import logging, sys
from meshcache import Client
logging.basicConfig(stream=sys.stdout, level=logging.WARNING)
with Client(${JSON.stringify(socket)}, mode="staged", namespace={"model": "m"}) as client:
    memory = bytearray(b"x" * 4096 + bytes(4096))
    region = client.register(memory)
    assert client.set_from(["key"], [(region, 0, 4096)]) == [True]
    assert client.get_into(["key"], [(region, 4096, 4096)]) == [True]
    assert memory[4096:] == b"x" * 4096
    print(region.mode)
`;
  const said = await run(t, 'python3', ['-c', script], { PYTHONPATH: PYTHON_CLIENT });
  t.regex(said, /bytes$/);
  t.regex(said, /the node gives no staging memory; its log says why/);
  await until(() => log.includes('memfd_create is forbidden (EPERM)'));
  const ended = collect(node);
  node.kill('SIGTERM');
  await ended;
});
