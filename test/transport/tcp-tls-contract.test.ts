import test from 'ava';
import { securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { PeerProcess } from '../contract/peer-process.js';
import { transportContract } from '../contract/transport-contract.js';

const host = '127.0.0.1';

if (noCertificates === '') {
  const authority = new Authority();
  test.after.always(() => authority.remove());
  // Together with a secret, which goes through TLS then.
  const security = {
    ...authority.issue('node'),
    clusterSecretFile: authority.write('secret', 'a secret of this test'),
  };
  transportContract(test, {
    protocol: 'tcp',
    host,
    peerProcess: (length) => PeerProcess.start('tcp', host, length, security),
    countsServed: true,
    bytesPerS: 2 ** 28,
    create: ({ port, env, retryAfterMs, stallTimeoutMs }) =>
      TcpTransport.create({
        host,
        port,
        env: securedEnvironment(security, env),
        limits: { retryAfterMs, stallTimeoutMs },
      }),
  });
} else {
  test.skip(`tcp transport over TLS (skipped: ${noCertificates})`, () => {});
}
