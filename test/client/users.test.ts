import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { digestOf } from '../../src/net/users.js';
import { folder, startNode } from '../_support/clients/client-fixture.js';
import { patientClock } from '../_support/patient-clock.js';
import { PYTHON, run, succeeds } from '../_support/python.js';
import { content, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';
import { tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

const hasPython = succeeds(PYTHON, '-c', 'import sys; sys.exit(sys.version_info < (3, 10))');
const python = unless(hasPython ? '' : 'no python3 of 3.10 or newer');

interface Options {
  readonly token?: string;
  readonly tokenFile?: string;
  readonly required?: boolean;
}

/** A node with users, and clients of the namespace with the tag `a`, whose log lines are kept. */
async function start(t: ExecutionContext, ...users: readonly unknown[]) {
  const file = new UsersFile(t, ...users);
  const { clientSocket: socket } = await startNode(t, { users_file: file.path });
  const lines: string[] = [];
  const log = { log: (...record: unknown[]) => lines.push(JSON.stringify(record)) };
  const connect = async (options: Options) => {
    const client = await MeshCacheClient.connect(
      { socket, namespace: { tag: 'a' }, ...options },
      { log, clock: patientClock },
    );
    t.teardown(() => client.close());
    return client;
  };
  return { file, socket, lines, connect };
}

test('client tokens: a client shows its token, and one that is refused says why', async (t) => {
  const { connect, lines } = await start(t, userNamed('a'), userNamed('b'));
  const client = await connect({ token: tokenOf('a'), required: true });
  t.true(await client.set('k', content(1, 100)));
  for (const token of [tokenOf('b'), 'wrong', undefined]) {
    const options = { required: true, ...(token === undefined ? {} : { token }) };
    const error = await t.throwsAsync<Error & { code: string }>(connect(options), { code: 'ERR_UNREACHABLE' });
    t.like(error?.cause, { code: 'ERR_AUTH' }, String(token));
  }
  t.is(await (await connect({ token: 'wrong' })).get('k'), null);
  t.true(lines.some((line) => line.includes('no node to attach to') && line.includes('is of no user of this node')));
  t.notRegex(lines.join(), new RegExp(`${tokenOf('a')}|${tokenOf('b')}`));
  await t.throwsAsync(connect({ token: 'two words' }), { message: /^connect: token must be 1 to 1024 visible/ });
});

test('client tokens: the file is read at each attempt to attach', async (t) => {
  const { connect } = await start(t, userNamed('a'));
  const tokenFile = join(folder(t), 'token');
  const client = await connect({ tokenFile });
  t.false(client.isConnected);
  writeFileSync(tokenFile, 'wrong\n');
  t.false(client.isConnected);
  writeFileSync(tokenFile, `${tokenOf('a')}\n`);
  await until(() => client.isConnected);
  t.true(await client.set('k', content(1, 100)));
});

test('client tokens: what a client has no right to is a miss, and is said', async (t) => {
  const { connect, lines } = await start(t, userNamed('a', { rights: ['write'] }));
  const client = await connect({ token: tokenOf('a') });
  t.true(await client.set('k', content(1, 100)));
  t.is(await client.get('k'), null);
  t.true(lines.some((line) => line.includes('denied a request') && line.includes('user a has no right')));
  await t.throwsAsync(client.pageEvents().next().then(), { code: 'ERR_AUTH' });
});

const SCRIPT = `
import logging, os, sys
import meshcache
socket, file = sys.argv[1:]
class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
lines = Lines()
logger = logging.getLogger("test")
logger.addHandler(lines)
def client(**options):
    return meshcache.Client(socket, namespace={"tag": "a"}, required=True, logger=logger, timeout=60, connect_timeout=60, **options)
for options in ({"token": "wrong"}, {}):
    try:
        client(**options)
        raise SystemExit("not refused")
    except meshcache.Denied as error:
        assert isinstance(error, meshcache.NotAvailable) and "status 11" in str(error), error
for bad in ("", "two words", 1):
    try:
        client(token=bad)
        raise SystemExit("taken")
    except ValueError as error:
        assert "two words" not in str(error)
with client(token=open(file).read().strip()) as one:
    assert "the-token" not in repr(one._settings)
    assert one.set("k", b"page")
    assert one.get("k") is None
    assert one.get("k") is None
denials = [line for line in lines.lines if "has denied a request" in line]
assert len(denials) == 1 and "user a has no right" in denials[0], lines.lines
os.environ["MESHCACHE_TOKEN_FILE"] = file
with client() as one:
    assert one.set("k", b"page")
with client(token_file=file) as one:
    try:
        next(iter(one.page_events()))
        raise SystemExit("not denied")
    except meshcache.Denied:
        pass
`;

python(
  'client tokens: the client in Python shows its token, says when it is refused, and logs what is denied',
  async (t) => {
    const { socket } = await start(t, userNamed('a', { rights: ['write'] }));
    const file = join(folder(t), 'token');
    writeFileSync(file, `${tokenOf('a')}\n`);
    t.is(digestOf(tokenOf('a')).length, 64);
    const output = await run(t, PYTHON, ['-c', SCRIPT, socket, file], {
      PYTHONPATH: 'src/python',
      MESHCACHE_TOKEN_FILE: '',
    });
    t.is(output, '');
  },
);
