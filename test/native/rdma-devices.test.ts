import test from 'ava';
import { normalAddress, readRdmaDevices } from '../../src/native/devices/rdma-devices.js';
import { fakeSysfs, usualGids } from '../_support/native/fake-sysfs.js';

test('RDMA devices: none where the kernel has no such folder', (t) => {
  t.deepEqual(readRdmaDevices('/nowhere/at/all'), []);
});

test('RDMA devices: ports with state, link layer, rate and the GIDs in use', (t) => {
  const root = fakeSysfs(t, {
    mlx5_10: [{ state: '1: DOWN' }],
    mlx5_2: [{ gids: usualGids(1) }, { state: '2: INIT', linkLayer: 'InfiniBand' }],
  });
  const devices = readRdmaDevices(root);
  t.deepEqual(
    devices.map(({ name }) => name),
    ['mlx5_2', 'mlx5_10'],
  );
  t.like(devices[0]?.ports[0], { number: 1, state: 'ACTIVE', linkLayer: 'Ethernet', rate: '100 Gb/sec (4X EDR)' });
  t.deepEqual(
    devices[0]?.ports[0]?.gids.map(({ index, type, address, netdev }) => [index, type, address, netdev]),
    [
      [0, 'RoCE v1', 'fe80::5054:ff:fe12:3401%eth0', 'eth0'],
      [1, 'RoCE v2', 'fe80::5054:ff:fe12:3401%eth0', 'eth0'],
      [2, 'RoCE v1', '10.77.0.1', 'eth0'],
      [3, 'RoCE v2', '10.77.0.1', 'eth0'],
      [4, 'RoCE v1', '2001:db8::1', 'eth0'],
      [5, 'RoCE v2', '2001:db8::1', 'eth0'],
    ],
  );
  t.like(devices[0]?.ports[1], { number: 2, state: 'INIT', linkLayer: 'InfiniBand' });
  t.like(devices[1]?.ports[0], { state: 'DOWN' });
});

test('RDMA devices: addresses have one spelling', (t) => {
  t.is(normalAddress('2001:DB8:0:0:0:0:0:1'), '2001:db8::1');
  t.is(normalAddress('::ffff:10.0.0.1'), '10.0.0.1');
  t.is(normalAddress('fe80::1%eth0'), 'fe80::1%eth0');
  t.is(normalAddress('10.0.0.1'), '10.0.0.1');
  t.is(normalAddress('a-host'), undefined);
});
