import test, { type ExecutionContext } from 'ava';
import { type RailWishes, selectRails } from '../../src/native/devices/rail-selection.js';
import { readRdmaDevices } from '../../src/native/devices/rdma-devices.js';
import { type FakePort, fakeSysfs, usualGids } from '../_support/native/fake-sysfs.js';

type Machine = Readonly<Record<string, readonly FakePort[]>>;

const TWO_DEVICES: Machine = {
  mlx5_0: [{ state: '1: DOWN', gids: usualGids(9) }, { gids: usualGids(1) }],
  mlx5_1: [{ gids: usualGids(2, 'eth1') }],
};

function select(t: ExecutionContext, machine: Machine, wishes: RailWishes, needsBindHost = false) {
  const devices = readRdmaDevices(fakeSysfs(t, machine));
  return selectRails(wishes, devices, { nameOf: (wish) => `key ${wish}`, needsBindHost });
}

test('rails: the first active port by default, with its IPv4 address', (t) => {
  t.deepEqual(select(t, TWO_DEVICES, {}).rails, [{ deviceName: 'mlx5_0', ibPort: 2, address: '10.77.0.1', port: 0 }]);
});

test('rails: global IPv6 goes before link-local, and RoCE v1 is not used', (t) => {
  const [local, , , , , global] = usualGids(1);
  const gids = [local, { ...local, type: 'RoCE v2' }, global] as NonNullable<FakePort['gids']>;
  t.is(select(t, { rxe0: [{ gids }] }, {}).rails?.[0]?.address, '2001:db8::1');
  t.is(select(t, { rxe0: [{ gids: gids.slice(0, 2) }] }, {}).rails?.[0]?.address, 'fe80::5054:ff:fe12:3401%eth0');
  t.regex(select(t, { rxe0: [{ gids: gids.slice(0, 1) }] }, {}).reason, /no port .* can be used: rxe0 .*RoCE v1/);
});

test('rails: the port that has the bind address goes first; any other bind address is no hindrance', (t) => {
  const expected = { deviceName: 'mlx5_1', ibPort: 1, address: '10.77.0.2', port: 7000 };
  t.deepEqual(select(t, TWO_DEVICES, { bindHost: '10.77.0.2', port: 7000 }).rails, [expected]);
  t.is(select(t, TWO_DEVICES, { bindHost: '2001:DB8:0::2' }).rails?.[0]?.address, '2001:db8::2');
  t.is(select(t, TWO_DEVICES, { bindHost: 'fe80::5054:ff:fe12:3402' }).rails?.[0]?.deviceName, 'mlx5_1');
  for (const bindHost of ['127.0.0.1', '0.0.0.0', '::', 'a-name']) {
    t.is(select(t, TWO_DEVICES, { bindHost }).rails?.[0]?.address, '10.77.0.1', bindHost);
  }
  for (const bindHost of ['0.0.0.0', '::', '10.77.0.1']) {
    t.is(select(t, TWO_DEVICES, { bindHost }, true).rails?.[0]?.address, '10.77.0.1', bindHost);
  }
});

test('rails: what is named is taken, several devices in their order', (t) => {
  t.is(select(t, TWO_DEVICES, { deviceName: 'mlx5_1' }).rails?.[0]?.address, '10.77.0.2');
  t.is(select(t, TWO_DEVICES, { deviceName: 'mlx5_0', gidIndex: 5 }).rails?.[0]?.address, '2001:db8::1');
  t.is(select(t, TWO_DEVICES, { ibPort: 1 }).rails?.[0]?.deviceName, 'mlx5_1', 'port 1 of the other is down');
  t.deepEqual(
    select(t, TWO_DEVICES, { deviceNames: ['mlx5_1', 'mlx5_0'], port: 7000 }).rails?.map((rail) => [
      rail.deviceName,
      rail.port,
    ]),
    [
      ['mlx5_1', 7000],
      ['mlx5_0', 0],
    ],
  );
});

test('rails: a wrong name is refused with its key, what was given, and what there is', (t) => {
  const has = /; this machine has mlx5_0 \(port 1 down, .*port 2 active, .*GID 3 RoCE v2 10\.77\.0\.1.*\); mlx5_1 \(/;
  const cases: [RailWishes, RegExp][] = [
    [{ deviceName: 'mlx5_7' }, /^key deviceName: there is no RDMA device mlx5_7/],
    [{ deviceNames: ['mlx5_0', 'mlx5_7'] }, /^key deviceNames: there is no RDMA device mlx5_7/],
    [{ deviceNames: ['mlx5_0', 'mlx5_0'] }, /^key deviceNames: mlx5_0,mlx5_0 names a device twice/],
    [{ deviceNames: Array.from({ length: 9 }, (_, i) => `m${i}`) }, /^key deviceNames: 9 devices are more than 8/],
    [{ ibPort: 3 }, /^key ibPort: no RDMA device has a port 3/],
    [{ deviceName: 'mlx5_1', ibPort: 2 }, /^key ibPort: RDMA device mlx5_1 has no port 2/],
    [{ gidIndex: 77 }, /^key gidIndex: no RDMA device has a RoCE v2 GID 77/],
    [{ deviceName: 'mlx5_1', gidIndex: 2 }, /^key gidIndex: RDMA device mlx5_1 has no RoCE v2 GID 2/],
  ];
  for (const [wishes, message] of cases) {
    t.throws(() => select(t, TWO_DEVICES, wishes), { code: 'ERR_CONFIG', message }, JSON.stringify(wishes));
    t.throws(() => select(t, TWO_DEVICES, wishes), { message: has }, JSON.stringify(wishes));
  }
  t.throws(() => select(t, TWO_DEVICES, { bindHost: '10.0.0.9' }, true), {
    code: 'ERR_CONFIG',
    message: /^key bindHost: 10\.0\.0\.9 is not an address of/,
  });
});

test('rails: no device, and no port that is up, are reasons', (t) => {
  t.like(select(t, {}, { deviceName: 'mlx5_0' }), { rails: null, reason: 'this host has no RDMA device' });
  const down: Machine = { mlx5_0: [{ state: '1: DOWN', gids: usualGids(1) }] };
  t.regex(select(t, down, {}).reason, /no port of an RDMA device can be used: mlx5_0 \(port 1 down/);
  t.regex(select(t, down, { deviceName: 'mlx5_0' }).reason, /no port of RDMA device mlx5_0 can be used/);
  t.regex(select(t, { rxe0: [{}] }, {}).reason, /port 1 active, without a GID: its interface has to be up/);
});
