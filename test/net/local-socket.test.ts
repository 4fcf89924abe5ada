import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { listenLocally, SocketTakenError } from '../../src/net/local-socket.js';
import { systemEnvironment } from '../../src/system/system-environment.js';

/** Leaves a socket at the path of whose process nothing is left. */
function leaveDead(path: string): void {
  const program =
    "require('node:net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))";
  spawnSync(process.execPath, ['-e', program, path]);
}

/** What the server at the path says to those who connect. */
function greetingAt(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('data', (bytes: Buffer) => {
      socket.destroy();
      resolve(bytes.toString());
    });
    socket.once('error', reject);
  });
}

test('local socket: of several nodes that find the socket of a killed one, one gets its path', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-socket-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'node.sock');
  leaveDead(path);
  t.deepEqual(readdirSync(folder), ['node.sock']);
  const env = systemEnvironment();
  const starts = Array.from({ length: 4 }, async (_, index) => {
    const server = env.network.createServer({ plane: 'client' }, (socket) => {
      // Those who only look whether anybody is there are gone before they can be told.
      socket.on('error', () => {});
      socket.end(Buffer.from(String(index)));
    });
    t.teardown(() => server.close());
    await listenLocally(
      server,
      { key: 'client_socket', path, mode: 0o600 },
      { env, onError: (error) => t.fail(error.message) },
    );
    return index;
  });
  const outcomes = await Promise.allSettled(starts);
  const winners = outcomes.filter((outcome) => outcome.status === 'fulfilled').map(({ value }) => value);
  t.is(winners.length, 1);
  for (const outcome of outcomes) if (outcome.status === 'rejected') t.true(outcome.reason instanceof SocketTakenError);
  t.is(await greetingAt(path), String(winners[0]));
  t.deepEqual(readdirSync(folder), ['node.sock']);
});
