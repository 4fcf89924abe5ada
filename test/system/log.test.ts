import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { stderrLogger } from '../../src/system/system-log.js';

const PROGRAM = fileURLToPath(new URL('./system-logging-program.js', import.meta.url));

test('log: a program goes on when nobody reads its stderr any more', async (t) => {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  t.teardown(() => child.kill('SIGKILL'));
  const exited = once(child, 'exit');
  const stderr = child.stderr as Readable;
  await Promise.race([once(stderr, 'data'), exited]);
  stderr.destroy();
  await once(stderr, 'close');
  child.send('go on');
  t.deepEqual(await exited, [0, null]);
});

test('log: many loggers listen to stderr once', (t) => {
  stderrLogger('error');
  const before = process.stderr.listenerCount('error');
  for (let i = 0; i < 20; i++) stderrLogger('error');
  t.is(process.stderr.listenerCount('error'), before);
});
