import test from 'ava';
import type { Host, HostAddress } from '../../src/base/environment/host.js';
import type { Endpoint } from '../../src/base/environment/network.js';
import { ownAddressTowards, reachableName, reachFault } from '../../src/node/runtime/own-address.js';
import { systemHost } from '../../src/system/system-host.js';

const LOOPBACK: HostAddress = { address: '127.0.0.1', family: 'IPv4', isInternal: true, isLinkLocal: false };
const LINK_LOCAL: HostAddress = { address: 'fe80::1', family: 'IPv6', isInternal: false, isLinkLocal: true };
const GLOBAL: HostAddress = { address: 'fd00::7', family: 'IPv6', isInternal: false, isLinkLocal: false };
const LAN: HostAddress = { address: '10.0.0.7', family: 'IPv4', isInternal: false, isLinkLocal: false };

function hostWith(resolved: readonly string[], addresses: readonly HostAddress[]): Host {
  return {
    ...systemHost,
    resolve: async () => resolved,
    addresses: () => addresses,
    addressTowards: async ({ host, port }) => `towards ${host} ${port}`,
  };
}

test('own address: what the host sends from, to the first address of the name', async (t) => {
  const host = hostWith(['10.0.0.1', '10.0.0.2'], [LOOPBACK, LAN]);
  t.is(await ownAddressTowards([{ host: 'head', port: 7 }], host), 'towards 10.0.0.1 7');
  const loopback = hostWith(['127.0.0.1'], [LOOPBACK, LAN]);
  for (const name of ['127.0.0.1', 'localhost']) {
    t.is(await ownAddressTowards([{ host: name, port: 7 }], loopback), 'towards 127.0.0.1 7', name);
  }
});

test('own address: a name that is loopback here is one that others reach, IPv4 if there is one', async (t) => {
  const target = [{ host: 'me', port: 7 }];
  t.is(await ownAddressTowards(target, hostWith(['127.0.1.1'], [LOOPBACK, LINK_LOCAL, GLOBAL, LAN])), '10.0.0.7');
  t.is(await ownAddressTowards(target, hostWith(['127.0.1.1'], [LOOPBACK, LINK_LOCAL, GLOBAL])), 'fd00::7');
  t.is(await ownAddressTowards(target, hostWith(['127.0.1.1'], [LOOPBACK, LINK_LOCAL])), '127.0.1.1');
});

test('own address: a name that nobody knows, and no route, name the key', async (t) => {
  const expected = { code: 'ERR_CONFIG', message: /"head" \(configuration key "discovery_addr"\)/ };
  await t.throwsAsync(ownAddressTowards([{ host: 'head', port: 7 }], hostWith([], [LAN])), expected);
  const unreachable = {
    ...hostWith(['10.0.0.1'], [LAN]),
    addressTowards: () => Promise.reject(new Error('ENETUNREACH')),
  };
  await t.throwsAsync(ownAddressTowards([{ host: 'head', port: 7 }], unreachable), expected);
});

test('own address: a configured name that is loopback here is not one that others reach', async (t) => {
  const alias = (addresses: readonly HostAddress[]) => ({ ...hostWith(['127.0.1.1'], addresses), name: 'debian' });
  t.is(await reachableName('debian', alias([LOOPBACK, LAN])), '10.0.0.7');
  t.is(await reachableName('debian', alias([LOOPBACK])), 'debian', 'a machine without a network');
  t.is(await reachableName('debian.example', alias([LOOPBACK, LAN])), '10.0.0.7');
  for (const name of ['127.0.0.1', '::1', 'localhost', 'ip6-localhost', 'a.localhost', 'private']) {
    t.is(await reachableName(name, alias([LOOPBACK, LAN])), name, 'what was asked for');
  }
  const own = (resolved: readonly string[]) => ({ ...hostWith(resolved, [LOOPBACK, LAN]), name: 'own.example' });
  t.is(await reachableName('own', own(['127.0.1.1', '10.0.0.7'])), 'own');
  t.is(await reachableName('own', own(['127.0.1.1'])), '10.0.0.7');
  t.is(await reachableName('own', own([])), 'own');
});

test('own address: of several addresses the first one with a route counts', async (t) => {
  const host: Host = {
    ...hostWith([], [LAN]),
    resolve: async (name) => (name === 'unknown' ? [] : [name]),
    addressTowards: async (target) => {
      if (target.host === '10.0.0.1') throw new Error('ENETUNREACH');
      return `towards ${target.host}`;
    },
  };
  const [unknown, without, reached] = ['unknown', '10.0.0.1', '10.0.0.2'].map((name) => ({ host: name, port: 7 })) as [
    Endpoint,
    Endpoint,
    Endpoint,
  ];
  t.is(await ownAddressTowards([unknown, without, reached], host), 'towards 10.0.0.2');
  await t.throwsAsync(ownAddressTowards([unknown, without], host), {
    code: 'ERR_CONFIG',
    message: /no route from this host to "unknown" or "10\.0\.0\.1" \(configuration key "discovery_addr"\)/,
  });
});

test('own address: where the system has no way to send, there is none', async (t) => {
  // Without leave to broadcast, a socket is not connected to this address.
  await t.throwsAsync(systemHost.addressTowards({ host: '255.255.255.255', port: 9 }), { code: 'EACCES' });
});

test('own address: the system sends to loopback from loopback', async (t) => {
  t.is(await systemHost.addressTowards({ host: '127.0.0.1', port: 9 }), '127.0.0.1');
  t.true((await systemHost.resolve('localhost')).some((address) => address === '127.0.0.1' || address === '::1'));
  t.deepEqual(await systemHost.resolve('no-such-host.invalid'), []);
  t.true(systemHost.addresses().some(({ isInternal }) => isInternal));
});

test('own address: one that no other host reaches is named', async (t) => {
  // Cause: such nodes were members, and every read of their pages was a miss, in silence.
  const host: Host = {
    ...hostWith([], [LOOPBACK, LAN]),
    resolve: async (name) => ({ localhost: ['127.0.0.1', '::1'], two: ['127.0.1.1', '10.0.0.7'] })[name] ?? [name],
  };
  const fault = (own: string, ...listed: string[]) =>
    reachFault(
      own,
      listed.map((name) => ({ host: name, port: 7 })),
      host,
    );
  for (const own of ['127.0.0.1', '127.0.1.1', '::1', 'localhost']) {
    const elsewhere = await fault(own, '10.0.0.8', '10.0.0.9');
    t.like(elsewhere, { isCertain: true }, own);
    t.regex(elsewhere?.text ?? '', /is loopback; set local_hostname/, own);
    t.like(await fault(own, '10.0.0.7', '10.0.0.9'), { isCertain: false }, `${own}, and a master here`);
    t.is(await fault(own, '127.0.0.1'), undefined, `${own} in a cluster of one host`);
    t.is(await fault(own, 'localhost'), undefined, own);
    t.is(await fault(own), undefined, `${own}, and nothing is listed`);
  }
  for (const own of ['10.0.0.7', 'fd00::7', 'two', 'feed::1']) t.is(await fault(own, '10.0.0.8'), undefined, own);
  for (const own of ['fe80::1%eth0', 'FE80::1', 'feb0::1']) {
    t.regex((await fault(own, 'fe80::2%eth0'))?.text ?? '', /link-local/, own);
  }
  for (const own of ['224.0.0.1', '239.1.1.1', 'ff02::1']) {
    t.regex((await fault(own, '10.0.0.8'))?.text ?? '', /multicast/, own);
  }
});
