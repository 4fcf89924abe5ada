import { execFile } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  existsSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import test, { type ExecutionContext } from 'ava';
import {
  DescriptorListener,
  type DescriptorListenerOptions,
  type DescriptorRecord,
  peerCredentials,
} from '../../src/native/unix-sockets.js';
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { noPython, PythonProcess } from '../_support/native/python-process.js';
import { PATIENCE_MS, until } from '../_support/support.js';

// One after the other: they count the descriptors of the process.

const run = promisify(execFile);
const PROGRAM = new URL('./native-addon-program.js', import.meta.url);
const RECORD_BYTES = 48;
const withPython = noPython === '' ? serialWithAddon : test.serial.skip;
const pythonSuffix = noPython === '' ? suffix : ` (skipped: ${noPython})`;

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-fds-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A listener in a folder of its own that ends with the test. */
function listen(t: ExecutionContext, options: Partial<DescriptorListenerOptions> = {}) {
  const path = options.path ?? join(folder(t), 'socket.fds');
  const listener = DescriptorListener.listen({
    path,
    mode: 0o600,
    recordBytes: RECORD_BYTES,
    connectionsMaxCount: 16,
    timeoutMs: PATIENCE_MS,
    onRecord: () => {},
    ...options,
  });
  t.teardown(() => listener.close());
  return { listener, path };
}

/** A connection whose end, of whatever kind, is seen by `closed`. */
function peerAt(path: string, bytes = 0): Socket {
  const peer = connect(path).on('error', () => {});
  if (bytes > 0) peer.write(Buffer.alloc(bytes));
  return peer.resume();
}

function descriptorCount(): number {
  return readdirSync('/proc/self/fd').length;
}

/** Answers with the record's first byte, and its descriptor. */
function echo({ record, fd, reply }: DescriptorRecord): void {
  reply(record.subarray(0, 1), fd >= 0 ? fd : undefined);
  if (fd >= 0) closeSync(fd);
}

withPython(`descriptor listener: a record comes with its descriptor and its sender${pythonSuffix}`, async (t) => {
  const records: DescriptorRecord[] = [];
  const { listener, path } = listen(t, { onRecord: (record) => records.push(record) });
  const python = PythonProcess.start(
    t,
    `
fd = os.memfd_create('sent')
os.write(fd, b'content')
with_one = send(sys.argv[1], bytes(range(48)), [fd])
data, fds = answer(with_one)
say(data.decode(), os.pread(fds[0], 100, 0).decode())
without = send(sys.argv[1], bytes(48))
say(answer(without)[0].decode(), without.recv(1) == b'')
`,
    path,
  );
  await until(() => records.length === 1);
  const first = records[0] as DescriptorRecord;
  t.deepEqual([...first.record], [...Array(RECORD_BYTES).keys()]);
  t.deepEqual([first.pid, first.uid, first.gid], [python.pid, process.getuid?.(), process.getgid?.()]);
  const bytes = Buffer.alloc(20);
  t.is(bytes.toString('latin1', 0, readSync(first.fd, bytes, 0, 20, 0)), 'content');
  closeSync(first.fd);
  const answerPath = join(folder(t), 'answer');
  writeFileSync(answerPath, 'from here');
  const answer = openSync(answerPath, 'r');
  first.reply(Buffer.from('taken'), answer);
  first.reply(Buffer.from('again'));
  t.is(fstatSync(answer).size, 9, 'it stays the caller’s');
  closeSync(answer);
  t.is(await python.line(), 'taken from here');
  await until(() => records.length === 2);
  t.is(records[1]?.fd, -1);
  records[1]?.reply(Buffer.from('x'));
  t.is(await python.line(), 'x True');
  t.is(await python.ended(), 0);
  t.deepEqual(listener.stats, { connections: 2, refused: 0, malformed: 0, timedOut: 0 });
});

withPython(
  `descriptor listener: what is not one record is harmless, and leaves no descriptor${pythonSuffix}`,
  async (t) => {
    const before = descriptorCount();
    const { listener, path } = listen(t, { onRecord: echo });
    const python = PythonProcess.start(
      t,
      `
path = sys.argv[1]
fd = os.open('/dev/null', os.O_RDONLY)
for length, count in ((1, 0), (47, 1), (49, 1), (100000, 0), (48, 2), (48, 100), (20, 100), (20, 253)):
    assert answer(send(path, bytes(length), [fd] * count)) == (b'', []), (length, count)
connect(path).close()
reset = connect(path)
reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
reset.close()
last = send(path, b'a' * 48, [fd])
data, fds = answer(last)
say(data.decode(), len(fds))
`,
      path,
    );
    t.is(await python.line(), 'a 1');
    t.is(await python.ended(), 0);
    await until(() => listener.stats.malformed === 10);
    t.deepEqual(listener.stats, { connections: 11, refused: 0, malformed: 10, timedOut: 0 });
    listener.close();
    await until(() => descriptorCount() === before);
  },
);

withPython(`descriptor listener: survives a flood, and is there for the next one${pythonSuffix}`, async (t) => {
  const before = descriptorCount();
  const { listener, path } = listen(t, { connectionsMaxCount: 50, onRecord: echo });
  const python = PythonProcess.start(
    t,
    `
path = sys.argv[1]
fd = os.open('/dev/null', os.O_RDONLY)
silent = [connect(path) for _ in range(1000)]
closed = sum(peer.recv(1) == b'' for peer in silent[50:])
for peer in silent:
    peer.close()
say(closed)
# There is room as soon as the listener has seen that the silent ones have gone.
answered = 0
while answered < 200:
    answered += answer(send(path, b'b' * 48, [fd]))[0] == b'b'
say(answered)
`,
    path,
  );
  t.is(await python.line(), '950');
  t.is(await python.line(), '200');
  t.is(await python.ended(), 0);
  await until(() => listener.stats.malformed >= 50);
  t.true(listener.stats.refused >= 950);
  t.is(listener.stats.timedOut, 0);
  listener.close();
  await until(() => descriptorCount() === before);
});

serialWithAddon(`descriptor listener: who is silent, or not answered, is let go after a time${suffix}`, async (t) => {
  const { listener, path } = listen(t, { timeoutMs: 30 });
  const peers = [peerAt(path), peerAt(path, RECORD_BYTES)];
  await until(() => peers.every(({ closed }) => closed));
  t.deepEqual(listener.stats, { connections: 2, refused: 0, malformed: 0, timedOut: 2 });
});

serialWithAddon(`descriptor listener: a late answer does nothing, nor one after the end${suffix}`, async (t) => {
  const records: DescriptorRecord[] = [];
  const { listener, path } = listen(t, { onRecord: (record) => records.push(record) });
  const peers = [peerAt(path, RECORD_BYTES), peerAt(path, RECORD_BYTES)];
  await until(() => records.length === 2);
  const data: Buffer[] = [];
  for (const peer of peers) peer.on('data', (bytes) => data.push(bytes));
  listener.close();
  listener.close();
  for (const { reply } of records) reply(Buffer.from('late'));
  await until(() => peers.every(({ closed }) => closed));
  t.deepEqual(data, []);
  t.is(listener.stats.connections, 2, 'the last figures stay');
});

withPython(
  `descriptor listener: closed by a record, it keeps no descriptor of those behind it${pythonSuffix}`,
  async (t) => {
    const before = descriptorCount();
    let count = 0;
    const { listener, path } = listen(t, {
      onRecord: ({ fd }) => {
        count++;
        closeSync(fd);
        listener.close();
      },
    });
    // While this thread waits all records are gathered. The one that has sent them stays until all connections have
    // ended.
    PythonProcess.runToEnd(
      `
fd = os.open('/dev/null', os.O_RDONLY)
peers = [send(sys.argv[1], bytes(48), [fd]) for _ in range(3)]
if os.fork() == 0:
    for peer in peers:
        answer(peer)
`,
      path,
    );
    await until(() => !existsSync(path));
    await until(() => descriptorCount() === before);
    t.is(count, 1);
  },
);

serialWithAddon(`descriptor listener: the file has its mode, and only its own is removed${suffix}`, (t) => {
  const before = process.umask(0o777);
  const { listener, path } = listen(t, { mode: 0o660, gid: process.getgid?.() });
  process.umask(before);
  t.is(statSync(path).mode & 0o777, 0o660);
  const taken = t.throws(() => listen(t, { path }));
  t.like(taken, { call: 'bind', errno: 98, device: '' });
  t.true(existsSync(path));
  rmSync(path);
  writeFileSync(path, 'another');
  listener.close();
  t.true(existsSync(path));
  t.like(
    t.throws(() => listen(t, { path: join(folder(t), 'x'.repeat(120)) })),
    { call: 'bind', errno: 36 },
  );
  const closed = folder(t);
  chmodSync(closed, 0o700);
  t.like(
    t.throws(() => listen(t, { path: join(closed, 'none', 'socket') })),
    { call: 'bind', errno: 2 },
  );
});

serialWithAddon(`descriptor listener: options and answers that cannot be are refused${suffix}`, async (t) => {
  for (const wrong of [
    { mode: 0o1000 },
    { mode: -1 },
    { gid: -1 },
    { recordBytes: 0 },
    { recordBytes: 4097 },
    { connectionsMaxCount: 0 },
    { timeoutMs: 0.5 },
  ]) {
    t.throws(() => listen(t, wrong), { code: 'ERR_ARGUMENT', message: /must be a whole number of/ });
  }
  const records: DescriptorRecord[] = [];
  const { path } = listen(t, { onRecord: (record) => records.push(record) });
  const peer = peerAt(path, RECORD_BYTES);
  await until(() => records.length === 1);
  for (const bytes of [new Uint8Array(0), new Uint8Array(257), 'text' as never, undefined as never]) {
    t.throws(() => records[0]?.reply(bytes), { code: 'ERR_ARGUMENT', message: /1 to 256/ });
  }
  t.throws(() => records[0]?.reply(new Uint8Array(1), -1), { code: 'ERR_ARGUMENT' });
  records[0]?.reply(new Uint8Array(256));
  await until(() => peer.closed);
  t.is(peer.bytesRead, 256);
});

serialWithAddon(`descriptor listener: it keeps no process and no thread from ending${suffix}`, async (t) => {
  const path = join(folder(t), 'socket');
  const { stdout } = await run(process.execPath, [PROGRAM.pathname, 'listen', path]);
  t.is(stdout, 'listening\n');
  t.false(existsSync(path), 'the end of the process has removed it');
  const worker = new Worker(PROGRAM, { argv: ['listen-and-stay', path] });
  await new Promise((resolve) => worker.once('message', resolve));
  const peer = peerAt(path);
  await once(peer, 'connect');
  await worker.terminate();
  await until(() => peer.closed);
  t.false(existsSync(path));
});

serialWithAddon(`peer credentials: of a connected Unix socket, and of nothing else${suffix}`, async (t) => {
  const path = join(folder(t), 'socket');
  const server = createServer();
  server.listen(path);
  await once(server, 'listening');
  const peer = connect(path);
  const [accepted] = (await once(server, 'connection')) as [Socket];
  const fdOf = (socket: unknown): number => (socket as { _handle: { fd: number } })._handle.fd;
  t.deepEqual(peerCredentials(fdOf(accepted)), {
    pid: process.pid,
    uid: process.getuid?.(),
    gid: process.getgid?.(),
  });
  const file = openSync('/dev/null', 'r');
  for (const fd of [file, -1, 0.5, 2 ** 40, Number.NaN]) {
    t.throws(() => peerCredentials(fd), { code: 'ERR_ARGUMENT', message: /peerCredentials: fd must be/ });
  }
  const tcp = createServer().listen(0);
  await once(tcp, 'listening');
  t.throws(() => peerCredentials(fdOf(tcp)), { code: 'ERR_ARGUMENT', message: /not connected/ });
  closeSync(file);
  peer.destroy();
  server.close();
  tcp.close();
});
