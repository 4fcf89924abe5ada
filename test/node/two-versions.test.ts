import { connect, createServer, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { metricOf } from '../_support/metrics/metric-of.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGE = content(1, 4096);
const MAGIC = 'MCRP';
const VERSION_AT = 4;

interface Disguise {
  readonly port: number;
  /** The version of the control protocol in the hello of those who come this way. */
  version: number;
}

/** A way to a discovery master on which a node speaks another version of the control protocol. */
async function disguise(t: ExecutionContext, masterPort: number): Promise<Disguise> {
  const sockets = new Set<Socket>();
  const way = { port: await freePort(), version: 2 };
  const server = createServer((from) => {
    const to = connect(masterPort, '127.0.0.1');
    for (const socket of [from, to]) {
      sockets.add(socket);
      socket.on('error', () => {});
    }
    from.once('data', (hello: Buffer) => {
      if (hello.toString('latin1', 0, MAGIC.length) === MAGIC) hello[VERSION_AT] = way.version;
      to.write(hello);
      from.pipe(to);
    });
    to.pipe(from);
  });
  await new Promise<void>((resolve) => server.listen(way.port, '127.0.0.1', resolve));
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return way;
}

test('versions: nodes of two versions of the control protocol refuse each other, work on, and talk once they are equal', async (t) => {
  const port = await freePort();
  const old = await createStore(port, { node_id: 'old' });
  t.teardown(() => old.close());
  t.true(await old.set('page', PAGE));
  const way = await disguise(t, port);
  // Its own address, so that it runs no master in the place of the one that it does not reach.
  const newer = await createStore(way.port, { node_id: 'newer', local_hostname: '127.0.0.2' });
  t.teardown(() => newer.close());
  await until(async () => (await metricOf(old, 'meshcache_rpc_errors_total', { kind: 'bad_version' })) > 0);
  t.is(newer.stats().members, 1);
  t.is(await newer.get('page'), null);
  t.deepEqual(await old.get('page'), PAGE);
  way.version = 1;
  await until(() => old.stats().members === 2 && newer.stats().members === 2);
  await until(async () => (await newer.get('page')) !== null);
  t.deepEqual(await newer.get('page'), PAGE);
});
