import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';
import { Redis } from 'ioredis';
import { createClient, RESP_TYPES } from 'redis';
import { placeOf, startRespNode, startRespNodes } from '../_support/resp/resp-fixture.js';
import { content, PATIENCE_MS, until } from '../_support/support.js';

const run = promisify(execFile);
const isThere = (program: string, ...args: string[]): boolean => spawnSync(program, args).status === 0;
const hasTools = isThere('redis-cli', '--version') && isThere('redis-benchmark', '--version');
/** Debian's Python, which may not be the first one. */
const python = ['python3', '/usr/bin/python3'].find((path) => isThere(path, '-c', 'import redis'));
const withTools = hasTools ? test : test.skip;
const withPython = python === undefined ? test.skip : test;
const noTools = hasTools ? '' : ' (skipped: no redis-cli)';
const noPython = python === undefined ? ' (skipped: no python3-redis)' : '';

const KEY = Buffer.from(content(7, 65_536));
const SIZES = [0, 1, 100_000, 8 * 2 ** 20];

withTools(`resp clients: redis-cli, with both protocols${noTools}`, async (t) => {
  const { port } = await startRespNode(t);
  const cli = async (...words: string[]): Promise<string> =>
    (await run('redis-cli', ['-p', `${port}`, '--no-raw', ...words])).stdout;
  for (const protocol of ['-2', '-3']) {
    t.is(await cli(protocol, 'set', 'k', 'a value'), 'OK\n');
    t.is(await cli(protocol, 'get', 'k'), '"a value"\n');
    t.is(await cli(protocol, 'get', 'absent'), '(nil)\n');
    t.is(await cli(protocol, 'mget', 'k', 'absent'), '1) "a value"\n2) (nil)\n');
    t.is(await cli(protocol, 'set', 'k', 'v', 'EX', '500'), 'OK\n');
    t.regex(await cli(protocol, 'ttl', 'k'), /^\(integer\) (500|4\d\d)\n$/);
    t.regex(await cli(protocol, 'pttl', 'k'), /^\(integer\) (500|4\d\d)\d{3}\n$/);
    t.is(await cli(protocol, 'set', 'short', 'v', 'PX', '50'), 'OK\n');
    await until(async () => (await cli(protocol, 'get', 'short')) === '(nil)\n');
    t.is(await cli(protocol, 'ttl', 'short'), '(integer) -2\n');
    t.is(await cli(protocol, 'del', 'k'), '(integer) 1\n');
    t.regex(await cli(protocol, 'info'), /loading:0[\s\S]*role:master/);
    t.regex(await cli(protocol, 'command', 'docs', 'get'), /Returns the value of a key/);
    t.is(await cli(protocol, 'ping'), 'PONG\n');
  }
  const value = Buffer.from(content(1, 300_000));
  const typed = run('redis-cli', ['-p', `${port}`, '-x', 'set', 'binary'], { encoding: 'buffer' });
  typed.child.stdin?.end(value);
  await typed;
  const raw = await run('redis-cli', ['-p', `${port}`, 'get', 'binary'], { encoding: 'buffer', maxBuffer: 2 ** 20 });
  t.true(raw.stdout.subarray(0, -1).equals(value));
});

withTools(`resp clients: redis-benchmark, alone and in pipelines${noTools}`, async (t) => {
  const { port, store } = await startRespNode(t, { global_segment_size: '64mb' });
  for (const extra of [[], ['-P', '100'], ['-3'], ['-d', '70000', '-n', '200']]) {
    const args = [
      '-p',
      `${port}`,
      '-q',
      '-n',
      '2000',
      '-c',
      '10',
      '-t',
      'ping_inline,ping_mbulk,set,get,mset',
      ...extra,
    ];
    const { stdout, stderr } = await run('redis-benchmark', args);
    t.regex(stdout, /GET: .* requests per second/);
    t.notRegex(stdout + stderr, /rror/);
  }
  store.verify();
});

const PYTHON = `
import os, redis, sys, time
here = dict(host='127.0.0.1', port=int(sys.argv[1]))
for protocol in (2, 3):
    # Older versions speak RESP2 only.
    version = {'protocol': protocol} if int(redis.__version__.split('.')[0]) >= 5 else {}
    r = redis.Redis(**version, **here)
    key = bytes(os.urandom(65536))
    for size in (0, 1, 70000, 3000000):
        value = os.urandom(size)
        assert r.set(key, value) is True
        assert r.get(key) == value, size
        assert r.strlen(key) == size
    assert r.mset({b'a\\r\\n\\0': b'\\0\\r\\n', 'b': b''}) is True
    assert r.mget(b'a\\r\\n\\0', 'b', 'absent') == [b'\\0\\r\\n', b'', None]
    assert r.exists('b', 'absent', 'b') == 2
    assert r.set('large', b'x' * (17 << 20)) is None
    pipe = r.pipeline(transaction=False)
    for i in range(10000):
        pipe.set(f'k{i % 100}', str(i))
        pipe.get(f'k{i % 100}')
    answers = pipe.execute()
    assert answers[0::2] == [True] * 10000 and answers[1::2] == [str(i).encode() for i in range(10000)]
    assert r.set('k', 'v', ex=500) is True and 400 < r.ttl('k') <= 500
    assert r.setex('k', 50, 'v') is True and 0 < r.pttl('k') <= 50000
    assert r.set('k', 'v') is True and (r.ttl('k'), r.ttl('absent')) == (-1, -2)
    assert r.set('k', 'v', px=20) is True
    while r.get('k') is not None:
        time.sleep(0.01)
    try:
        r.set('k', 'v', nx=True)
        assert False
    except redis.ResponseError as error:
        assert 'NX' in str(error), error
    assert r.delete('b', 'absent') == 1
    assert r.dbsize() > 0 and r.info()['role'] == 'master'
    assert r.client_id() > 0 and r.client_setname('me') and r.client_getname() in (b'me', 'me')
    assert r.flushdb() is True and r.dbsize() == 0
print(redis.__version__)
`;

withPython(`resp clients: python3-redis${noPython}`, async (t) => {
  const { port } = await startRespNode(t);
  const { stdout } = await run(python as string, ['-c', PYTHON, `${port}`]);
  t.log(`redis-py ${stdout.trim()}`);
  t.regex(stdout, /\d/);
});

test('resp clients: ioredis, two nodes, with a password', async (t) => {
  const stores = await startRespNodes(t, 2, { resp_password: 'right-one', global_segment_size: '128mb' });
  const [a, b] = stores.map((store) => new Redis({ ...placeOf(store), password: 'right-one', lazyConnect: true }));
  t.teardown(() => [a, b].map((client) => client?.disconnect()));
  for (const [i, size] of SIZES.entries()) {
    const value = Buffer.from(content(i, size));
    t.is(await a?.set(KEY, value), 'OK');
    // Another node's page may be a miss while the machine is busy, and is never another one.
    let got = await b?.getBuffer(KEY);
    await until(async () => {
      got ??= await b?.getBuffer(KEY);
      return got != null;
    });
    t.true(got?.equals(value), `${size}`);
  }
  t.is(await a?.set('expires', 'v', 'PX', 60_000), 'OK');
  const leftMs = (await b?.pttl('expires')) ?? 0;
  t.true(leftMs > 0 && leftMs <= 60_000, `${leftMs}`);
  t.is(await a?.set('expires', 'v', 'PX', 100), 'OK');
  await until(async () => (await b?.get('expires')) === null);
  t.is(await b?.pttl('expires'), -2);
  const pipeline = a?.pipeline();
  for (let i = 0; i < 10_000; i++) pipeline?.set(`k${i}`, `${i}`);
  t.true((await pipeline?.exec())?.every(([error, answer]) => error === null && answer === 'OK'));
  const keys = Array.from({ length: 10_000 }, (_, i) => `k${i}`);
  let values: (string | null)[] = [];
  await until(async () => {
    values = (await b?.mget(keys)) ?? [];
    return values.length === keys.length && !values.includes(null);
  });
  t.deepEqual(
    values,
    keys.map((key) => key.slice(1)),
  );
  await until(async () => (await b?.exists('k1', 'k2', 'absent')) === 2);
  // The node that has the pages need not ask the other one which of them exist.
  t.is(await a?.del('k1', 'k2', 'absent'), 2);
  t.is(await b?.get('k1'), null);
  await t.throwsAsync(async () => a?.set('k', 'v', 'NX'), { message: /option NX is not supported/ });
  await t.throwsAsync(async () => a?.call('NOTHING'), { message: /unknown command/ });
  t.is(await a?.ping(), 'PONG');
  await a?.quit();
});

for (const RESP of [2, 3] as const) {
  test(`resp clients: node-redis with RESP${RESP}`, async (t) => {
    const { host, port } = await startRespNode(t, { global_segment_size: '128mb' });
    const plain = createClient({ socket: { host, port }, RESP, name: 'me', commandOptions: { timeout: PATIENCE_MS } });
    await plain.connect();
    const client = plain.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    t.teardown(() => plain.destroy());
    for (const [i, size] of SIZES.entries()) {
      const value = Buffer.from(content(i, size));
      t.is(String(await client.set(KEY, value)), 'OK');
      t.true((await client.get(KEY))?.equals(value), `${size}`);
    }
    const sent = Array.from({ length: 10_000 }, (_, i) => plain.set(`k${i % 10}`, `${i}`));
    t.true((await Promise.all(sent)).every((answer) => answer === 'OK'));
    t.deepEqual(await plain.mGet(['k9', 'absent']), ['9999', null]);
    t.is(await plain.del(['k1', 'absent']), 1);
    t.is(await plain.clientGetName(), 'me');
    t.is(await plain.set('k', 'v', { expiration: { type: 'EX', value: 60 } }), 'OK');
    const leftS = await plain.ttl('k');
    t.true(leftS > 30 && leftS <= 60, `${leftS}`);
    await t.throwsAsync(plain.set('k', 'v', { condition: 'NX' }), { message: /NX is not supported/ });
    t.is(await plain.ping(), 'PONG');
  });
}
