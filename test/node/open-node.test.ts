import test from 'ava';
import { ConfigError } from '../../src/base/errors.js';
import { isLoopbackHost, openNodeFault } from '../../src/net/loopback.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';

test('open node: only loopback is reached by this machine alone', (t) => {
  for (const host of ['localhost', '127.0.0.1', '127.8.9.10', '::1']) t.true(isLoopbackHost(host), host);
  for (const host of ['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example', '127.0.0', 'host-1', '']) {
    t.false(isLoopbackHost(host), host);
  }
  t.is(openNodeFault('10.0.0.1', true), undefined);
  t.is(openNodeFault('127.0.0.1', false), undefined);
  t.regex(openNodeFault('10.0.0.1', false) ?? '', /10\.0\.0\.1/);
});

simulated(
  'open node: beyond loopback without secret and TLS it does not start unless told, and says what to set',
  async (t, world) => {
    const open = { allow_unauthenticated: false };
    const error = await t.throwsAsync(startStore(world, { host: '10.0.0.1', config: open }), {
      instanceOf: ConfigError,
    });
    for (const key of ['allow_unauthenticated', 'cluster_secret_file', 'tls_cert_file', '10\\.0\\.0\\.1']) {
      t.regex(error?.message ?? '', new RegExp(key));
    }
    await startStore(world, { host: '127.0.0.1', addr: '127.0.0.1:31990', config: open });
    await startStore(world, {
      host: '10.0.0.3',
      addr: '10.0.0.3:31990',
      config: { ...open, cluster_secret: 'a secret of some length' },
    });
    await startStore(world, { host: '10.0.0.4', addr: '10.0.0.4:31990', config: { allow_unauthenticated: true } });
  },
);

simulated(
  'open node: nor does it where only its discovery master would be reached from other hosts',
  async (t, world) => {
    // Cause: only the address of the node itself was looked at; a stranger joined by way of the master, and its pages
    // were read.
    const own = { allow_unauthenticated: false, local_hostname: '127.0.0.1' };
    for (const addr of ['10.0.0.5:31990', '127.0.0.1:31990,10.0.0.5:31990']) {
      const error = await t.throwsAsync(startStore(world, { host: '10.0.0.5', addr, config: own }), {
        instanceOf: ConfigError,
      });
      t.regex(error?.message ?? '', /"discovery_addr".*10\.0\.0\.5.*cluster_secret_file.*allow_unauthenticated/);
    }
    const told = { ...own, allow_unauthenticated: true };
    await startStore(world, { host: '10.0.0.5', addr: '10.0.0.5:31990', config: told });
  },
);
