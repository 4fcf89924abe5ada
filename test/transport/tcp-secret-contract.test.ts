import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { PeerProcess } from '../contract/peer-process.js';
import { transportContract } from '../contract/transport-contract.js';

const host = '127.0.0.1';
const folder = mkdtempSync(join(tmpdir(), 'meshcache-secret-'));
const security = { clusterSecretFile: join(folder, 'secret') };
writeFileSync(security.clusterSecretFile, 'a secret of this test alone\n', { mode: 0o600 });
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

transportContract(test, {
  protocol: 'tcp',
  host,
  peerProcess: (length) => PeerProcess.start('tcp', host, length, security),
  countsServed: true,
  bytesPerS: 2 ** 30,
  create: ({ port, env, retryAfterMs, stallTimeoutMs }) =>
    TcpTransport.create({
      host,
      port,
      env: securedEnvironment(security, env),
      limits: { retryAfterMs, stallTimeoutMs },
    }),
});
