import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { checkNuma } from '../../src/cli/doctor/numa.js';

/** A machine with two NUMA nodes of four processors each, where a process may run on some, with devices on their nodes. */
function machine(t: ExecutionContext, processors: string, devices: Readonly<Record<string, number>>): string {
  const root = mkdtempSync(join(tmpdir(), 'meshcache-numa-'));
  t.teardown(() => rmSync(root, { recursive: true }));
  const files = {
    'sys/devices/system/node/online': '0-1\n',
    'sys/devices/system/node/node0/cpulist': '0-1,4-5\n',
    'sys/devices/system/node/node1/cpulist': '2-3,6-7\n',
    'proc/self/status': `Name:\tnode\nCpus_allowed_list:\t${processors}\nMems_allowed_list:\t0-1\n`,
    ...Object.fromEntries(
      Object.entries(devices).map(([device, node]) => [`sys/class/${device}/device/numa_node`, `${node}\n`]),
    ),
  };
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

test('doctor, NUMA: a machine whose memory is equally near needs nothing', (t) => {
  const root = machine(t, '0-7', {});
  writeFileSync(join(root, 'sys/devices/system/node/online'), '0\n');
  t.is(checkNuma(root).state, 'n/a');
});

test('doctor, NUMA: a process on both nodes is told where its device is', (t) => {
  const found = checkNuma(machine(t, '0-7', { 'infiniband/mlx5_0': 1, 'net/eth0': 0 }));
  t.like(found, { state: 'warning', detail: '2 nodes; this process may run on 0, 1; mlx5_0 is on node 1' });
  t.regex(found.advice ?? '', /numactl --cpunodebind=1 --preferred=1 /);
});

test('doctor, NUMA: a process on the node of its device is right, on the other one it is not', (t) => {
  t.like(checkNuma(machine(t, '2,6-7', { 'infiniband/mlx5_0': 1 })), { state: 'ok' });
  t.like(checkNuma(machine(t, '0-1', { 'infiniband/mlx5_0': 1 })), { state: 'warning' });
  t.like(checkNuma(machine(t, '0-1', { 'infiniband/mlx5_0': 1, 'infiniband/mlx5_1': 0 })), { state: 'ok' });
});

test('doctor, NUMA: without RDMA the network devices count, and virtual ones are nowhere', (t) => {
  const found = checkNuma(machine(t, '2-3', { 'net/eth0': 0, 'net/veth0': -1 }));
  t.like(found, { state: 'warning', detail: '2 nodes; this process may run on 1; eth0 is on node 0' });
  t.like(checkNuma(machine(t, '2-3', {})), { state: 'ok' });
});
