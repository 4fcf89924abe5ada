import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';
import test, { type ExecutionContext } from 'ava';
import { TlsIdentity } from '../../src/base/environment/credentials.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { type Connection, listenAt, onConnected, portOf } from '../../src/base/environment/network.js';
import { ConfigError } from '../../src/base/errors.js';
import { AuthFailures } from '../../src/net/auth-failures.js';
import { readTlsIdentity } from '../../src/net/credentials/tls-files.js';
import { Listener } from '../../src/net/listener.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemNetwork, tlsNetwork } from '../../src/system/system-network.js';
import { Authority, type CertificateFiles, noCertificates } from '../_support/certificates.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';
import { RecordingEnvironment } from '../contract/auth-contract.js';

function identityOf({ tlsCertFile, tlsKeyFile, tlsCaFile }: CertificateFiles): TlsIdentity {
  const [cert, key, ca] = [tlsCertFile, tlsKeyFile, tlsCaFile].map((path) => readFileSync(path, 'utf8'));
  return new TlsIdentity({ cert, key, ca } as { cert: string; key: string; ca: string });
}

/** A server that says `hello` to everybody whom it lets in. */
async function greeter(t: ExecutionContext, files: CertificateFiles, admit?: (socket: Connection) => boolean) {
  const recording = new RecordingEnvironment();
  const failures = new AuthFailures('rpc', recording.env);
  const network = tlsNetwork(identityOf(files), (address) => failures.record('tls', address));
  let letIn = 0;
  const server = network.createServer(admit === undefined ? {} : { admit }, (socket) => {
    letIn++;
    socket.on('error', () => {});
    socket.end(Buffer.from('hello'));
  });
  t.teardown(() => server.close());
  await listenAt(server, { host: '127.0.0.1', port: 0 }, (error) => t.fail(error.message));
  return { port: portOf(server), recording, server, letIn: () => letIn };
}

/** All that a socket gets until it is closed. */
async function heard(socket: Connection): Promise<string> {
  let text = '';
  socket.on('data', (chunk) => {
    text += String(chunk);
  });
  socket.on('error', () => {});
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
  return text;
}

if (noCertificates === '') {
  const authority = new Authority();
  const stranger = new Authority();
  test.after.always(() => {
    authority.remove();
    stranger.remove();
  });
  const [node, other, expired] = [authority.issue('node'), authority.issue('other'), authority.issue('expired', -1)];
  const foreign = stranger.issue('node');
  const nobodyHears = (): void => {};

  test('tls: nodes whom the same authority has signed talk to each other', async (t) => {
    const server = await greeter(t, node);
    const socket = tlsNetwork(identityOf(other), nobodyHears).connect({ host: '127.0.0.1', port: server.port });
    let isConnected = false;
    onConnected(socket, () => {
      isConnected = true;
    });
    t.is(await heard(socket), 'hello');
    t.true(isConnected);
    t.true(socket.encrypted);
    t.is(server.recording.failures('rpc', 'tls'), 0);
  });

  test('tls: nobody else is let in, and the failures are counted', async (t) => {
    const server = await greeter(t, node);
    const { tlsCaFile } = node;
    const at = { host: '127.0.0.1', port: server.port };
    const ca = readFileSync(tlsCaFile, 'utf8');
    const clients: Record<string, () => Connection> = {
      'signed by another authority': () =>
        tlsNetwork(new TlsIdentity({ ...identityOf(foreign).reveal(), ca }), nobodyHears).connect(at),
      expired: () => tlsNetwork(identityOf(expired), nobodyHears).connect(at),
      'no certificate': () => tls.connect({ ...at, ca, checkServerIdentity: () => undefined }),
      'an old version': () =>
        tls.connect({
          ...at,
          ...identityOf(other).reveal(),
          maxVersion: 'TLSv1.2',
          checkServerIdentity: () => undefined,
        }),
      'no TLS': () => net.connect(at).end('MCRP and something that is no TLS record at all'),
    };
    let failures = 0;
    for (const [name, connect] of Object.entries(clients)) {
      t.is(await heard(connect()), '', name);
      failures++;
      await until(() => server.recording.failures('rpc', 'tls') === failures);
    }
    t.is(server.letIn(), 0);
    t.is(server.recording.lines.length, 1, 'one record for all of them');
  });

  test('tls: a client sends nothing to a server whose certificate is not of its authority', async (t) => {
    for (const files of [foreign, expired]) {
      const server = await greeter(t, { ...files, tlsCaFile: node.tlsCaFile });
      const socket = tlsNetwork(identityOf(node), nobodyHears).connect({ host: '127.0.0.1', port: server.port });
      onConnected(socket, () => t.fail('it took the server for one of its cluster'));
      t.is(await heard(socket), '');
    }
  });

  test('tls: who is not admitted is refused before the handshake', async (t) => {
    let isOpen = false;
    const server = await greeter(t, node, (socket) => {
      if (!isOpen) socket.resetAndDestroy();
      return isOpen;
    });
    const connect = () => tlsNetwork(identityOf(other), nobodyHears).connect({ host: '127.0.0.1', port: server.port });
    t.is(await heard(connect()), '');
    t.is(server.letIn(), 0);
    isOpen = true;
    t.is(await heard(connect()), 'hello');
    t.is(server.recording.failures('rpc', 'tls'), 0, 'a refusal is no failed handshake');
  });

  test('tls: a server closes at once when it drops the handshakes that have begun', async (t) => {
    const server = await greeter(t, node);
    const sockets = Array.from({ length: 5 }, () => net.connect(server.port, '127.0.0.1'));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    const closed = sockets.map(heard);
    server.server.dropPending?.();
    await new Promise<void>((resolve) => server.server.close(resolve));
    await Promise.all(closed);
    t.pass();
  });

  test('tls: a listener that pauses leaves handshakes alone, and ends them when it closes', async (t) => {
    const refused: string[] = [];
    let pauses = 0;
    const listener = new Listener({
      env: systemEnvironment({
        clock: patientClock,
        log: silentLogger,
        network: tlsNetwork(identityOf(node), (address) => refused.push(address)),
        metrics: { ...noMetrics, count: (name) => (pauses += Number(name === 'meshcache_listen_pauses_total')) },
      }),
      plane: 'rpc',
      options: {},
      rates: { perAddressPerS: 1, perAddressBurstCount: 1000, perS: 1, burstCount: 3, pauseMs: 3_600_000 },
      onConnection: (socket) => socket.end(Buffer.from('hello')),
      onRefused: () => {},
      onError: (error) => t.fail(error.message),
    });
    const port = await listener.listen('127.0.0.1', 0);
    const clients: net.Socket[] = [];
    t.teardown(() => {
      for (const socket of clients) socket.destroy();
      return listener.close();
    });
    const connect = async (): Promise<net.Socket> => {
      const socket = net.connect(port, '127.0.0.1').on('error', () => {});
      clients.push(socket);
      await new Promise<unknown>((resolve) => socket.once('connect', resolve).once('close', resolve));
      return socket;
    };
    const [early, silent] = [await connect(), await connect()];
    while (pauses === 0) await connect();
    const late = tls.connect({ socket: early, ...identityOf(other).reveal(), checkServerIdentity: () => undefined });
    t.is(await heard(late), 'hello');
    const silentEnds = heard(silent);
    await listener.close();
    t.is(await silentEnds, '');
    t.deepEqual(refused, [], 'no handshake was waited for');
  });

  test('tls: files that cannot be used are refused by key and path', (t) => {
    const now = Date.now();
    const files = { certFile: node.tlsCertFile, keyFile: node.tlsKeyFile, caFile: node.tlsCaFile };
    t.truthy(readTlsIdentity(files, { files: systemFiles, wallMs: now }));
    const cases: readonly (readonly [Partial<typeof files>, number, RegExp])[] = [
      [{ certFile: '/nowhere/node.pem' }, now, /"tls_cert_file": \/nowhere\/node\.pem cannot be read \(ENOENT\)/],
      [{ certFile: node.tlsKeyFile }, now, /"tls_cert_file": .* has no certificate/],
      [{ certFile: expired.tlsCertFile }, now, /"tls_cert_file": .* has expired on/],
      [{}, now - 86_400_000, /"tls_cert_file": .* is not valid before/],
      [{ keyFile: other.tlsKeyFile }, now, /"tls_key_file": .* does not belong to the certificate/],
      [{ keyFile: node.tlsCertFile }, now, /"tls_key_file": .* is no private key/],
      [{ caFile: node.tlsKeyFile }, now, /"tls_ca_file": .* has no certificate/],
    ];
    for (const [change, wallMs, message] of cases) {
      t.throws(() => readTlsIdentity({ ...files, ...change }, { files: systemFiles, wallMs }), {
        instanceOf: ConfigError,
        message,
      });
    }
  });
} else {
  test.skip(`tls (skipped: ${noCertificates})`, () => {});
}

test('tls: without it a socket is connected when it is', async (t) => {
  const server = systemNetwork.createServer({}, (socket) => socket.end());
  t.teardown(() => server.close());
  await listenAt(server, { host: '127.0.0.1', port: 0 }, (error) => t.fail(error.message));
  const socket = systemNetwork.connect({ host: '127.0.0.1', port: portOf(server) });
  await new Promise<void>((resolve) => onConnected(socket, resolve));
  socket.destroy();
  t.pass();
});
