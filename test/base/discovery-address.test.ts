import test from 'ava';
import {
  discoveryAddressFault,
  formatDiscoveryAddress,
  parseDiscoveryAddress,
} from '../../src/base/settings/discovery-address.js';
import { MeshCacheConfig } from '../../src/config.js';

test('discovery address: a list, and names with and without a port and a name server', (t) => {
  const server = { host: '10.0.0.53', port: 53 };
  const expected = {
    'a:1, [::1]:2': {
      kind: 'list',
      endpoints: [
        { host: 'a', port: 1 },
        { host: '::1', port: 2 },
      ],
    },
    'dns://cache.ns.svc': { kind: 'dns', name: 'cache.ns.svc', port: undefined, server: undefined },
    'DNS://cache.ns.svc.:31990/': { kind: 'dns', name: 'cache.ns.svc', port: 31990, server: undefined },
    'dns://10.0.0.53/_mc._tcp.cache': { kind: 'dns', name: '_mc._tcp.cache', port: undefined, server },
    'dns://[fd00::1]:8600/x:7': { kind: 'dns', name: 'x', port: 7, server: { host: 'fd00::1', port: 8600 } },
  };
  for (const [text, address] of Object.entries(expected)) {
    const parsed = parseDiscoveryAddress(text);
    t.deepEqual(parsed as unknown, address, text);
    t.deepEqual(
      parseDiscoveryAddress(formatDiscoveryAddress(parsed as NonNullable<typeof parsed>)) as unknown,
      address,
    );
  }
});

test('discovery address: what is not allowed is refused, and a password is not repeated', (t) => {
  const refused: [text: string, says: RegExp][] = [
    ['consul://x', /got the scheme consul:\/\/, allowed is dns:\/\//],
    ['dns://user:hush@x:1', /a user or a password, which logs would show/],
    ['dns://x:1,10.0.0.1:1', /dns:\/\/ in a list/],
    ['10.0.0.1:1,dns://x', /dns:\/\/ in a list/],
    ['dns://', /got "dns:\/\/", allowed is host:port/],
    ['dns://x:0', /allowed is/],
    ['dns://x:65536', /allowed is/],
    ['dns://10.0.0.1:31990', /allowed is/],
    ['dns://a..b', /allowed is/],
    ['dns://a b', /allowed is/],
    ['dns://a/b/c', /allowed is/],
    [`dns://${'a'.repeat(64)}`, /allowed is/],
  ];
  for (const [text, says] of refused) {
    t.is(parseDiscoveryAddress(text), undefined, text);
    const error = t.throws(() => new MeshCacheConfig({ discoveryAddr: text }), { code: 'ERR_CONFIG' } as object, text);
    t.regex(error?.message ?? '', says);
    t.notRegex(error?.message ?? '', /hush/);
  }
  t.is(discoveryAddressFault('nowhere'), undefined);
});
