import test from 'ava';
import { searchedNames, systemNames } from '../../src/system/system-names.js';
import { DnsServer, hasDnsServer } from '../_support/discovery/dns-server.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const withDns = unless(hasDnsServer ? '' : 'no dnsmasq');

test('names: search domains are tried first for names with few dots, last for others', (t) => {
  const file = 'nameserver 10.0.0.2\nsearch ns.svc.cluster.local svc.cluster.local.\noptions edns0 ndots:5\n';
  const of = (name: string): string[] => searchedNames(name, file);
  t.deepEqual(of('cache'), ['cache.ns.svc.cluster.local', 'cache.svc.cluster.local', 'cache']);
  t.is(of('a.b.c.d.e.f')[0], 'a.b.c.d.e.f');
  t.deepEqual(searchedNames('cache', ''), ['cache']);
  t.deepEqual(searchedNames('a.b', 'search x.test'), ['a.b', 'a.b.x.test']);
});

withDns('names: A records, AAAA records without them, SRV records with the addresses of their targets', async (t) => {
  const dns = await DnsServer.start(t, {
    addresses: {
      'both.test': ['10.1.0.1', 'fd00::1', '10.1.0.2'],
      'six.test': ['fd00::2'],
      'a.pods.test': ['10.1.0.3'],
      'b.pods.test': ['fd00::4'],
    },
    services: { '_meshcache._tcp.pods.test': ['b.pods.test:5001:10', 'a.pods.test:5000:20', 'gone.test:5002:1'] },
  });
  const server = { host: '127.0.0.1', port: dns.port };
  const ask = (name: string, kind: 'addresses' | 'services') => systemNames.lookUp({ name, kind, server });
  const both = await ask('both.test', 'addresses');
  t.deepEqual(both.endpoints.map(({ host }) => host).sort(), ['10.1.0.1', '10.1.0.2']);
  t.is(both.ttlS, 1);
  t.deepEqual((await ask('six.test', 'addresses')).endpoints, [{ host: 'fd00::2', port: 0 }]);
  t.deepEqual((await ask('_meshcache._tcp.pods.test', 'services')).endpoints, [
    { host: 'fd00::4', port: 5001 },
    { host: '10.1.0.3', port: 5000 },
  ]);
  t.deepEqual((await ask('nobody.test', 'addresses')).endpoints, []);
  t.deepEqual((await ask('nobody.test', 'services')).endpoints, []);
});

withDns('names: a name server that is frozen or gone rejects within seconds', async (t) => {
  const dns = await DnsServer.start(t, { addresses: { 'one.test': ['10.1.0.1'] } });
  const ask = (port: number) =>
    systemNames.lookUp({ name: 'one.test', kind: 'addresses', server: { host: '127.0.0.1', port } });
  await dns.freeze();
  const fromMs = performance.now();
  await t.throwsAsync(ask(dns.port), { message: /ETIMEOUT/ });
  t.true(performance.now() - fromMs < 20_000);
  dns.thaw();
  t.is((await ask(dns.port)).endpoints.length, 1);
  await t.throwsAsync(ask(await freePort()), { message: /ECONNREFUSED|ETIMEOUT/ });
});

withDns('names: an answer that is too long for a datagram comes whole', async (t) => {
  const addresses = Array.from({ length: 300 }, (_, i) => `10.2.${Math.floor(i / 200)}.${1 + (i % 200)}`);
  const dns = await DnsServer.start(t, { addresses: { 'many.test': addresses } });
  const server = { host: '127.0.0.1', port: dns.port };
  const { endpoints } = await systemNames.lookUp({ name: 'many.test', kind: 'addresses', server });
  t.deepEqual(endpoints.map(({ host }) => host).sort(), [...addresses].sort());
});

withDns('names: an answer that is no longer wanted is not waited for', async (t) => {
  const dns = await DnsServer.start(t, { addresses: { 'one.test': ['10.1.0.1'] } });
  await dns.freeze();
  const unwanted = new AbortController();
  const server = { host: '127.0.0.1', port: dns.port };
  const asked = systemNames.lookUp({ name: 'one.test', kind: 'addresses', server }, unwanted.signal);
  const fromMs = performance.now();
  unwanted.abort();
  await t.throwsAsync(asked, { message: /CANCELLED|no longer wanted/ });
  t.true(performance.now() - fromMs < 1_000);
});
