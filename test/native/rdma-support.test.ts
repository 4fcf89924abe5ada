import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { lockableBytes, lockedMemory, lockedMemoryText } from '../../src/native/devices/locked-memory.js';
import { deviceFilesProblem, type RdmaHost } from '../../src/native/devices/rdma-devices.js';
import { type RdmaStep, rdmaSupport } from '../../src/native/devices/rdma-support.js';
import { FakeFabric, fakeDevice } from '../_support/native/fake-rdma.js';

const fabric = new FakeFabric();
const MIB = 2 ** 20;

function hostWithProbe(step: string, reason: string): Partial<RdmaHost> {
  const addon = fabric.addon({ rdmaProbe: () => ({ usable: false, step, reason }) });
  return { load: () => ({ addon, reason: '' }) };
}

test('RDMA support: usable where all is there', (t) => {
  t.deepEqual(rdmaSupport({ host: fabric.host(), bytes: 2 ** 40 }), { usable: true, step: '', reason: '', advice: '' });
});

test('RDMA support: the first step that fails, why, and what to do', (t) => {
  const cases: [RdmaStep, Partial<RdmaHost>, RegExp, RegExp][] = [
    ['addon', { load: () => ({ addon: null, reason: 'MESHCACHE_NATIVE=off' }) }, /^MESHCACHE_NATIVE=off$/, /unset/],
    ['addon', { load: () => ({ addon: null, reason: 'it is damaged' }) }, /damaged/, /npm run build:native/],
    ['build', { load: () => ({ addon: fabric.addon({ hasRdma: false }), reason: '' }) }, /without RDMA/, /NO_RDMA/],
    ['libibverbs', hostWithProbe('libibverbs', 'cannot open shared object file'), /cannot open shared/, /libibverbs1/],
    ['librdmacm', hostWithProbe('librdmacm', 'cannot open shared object file'), /^librdmacm/, /librdmacm1/],
    [
      'rdma_cm',
      hostWithProbe('rdma_cm', 'No such device: /dev/infiniband/rdma_cm is not there'),
      /is not there/,
      /rdma_ucm/,
    ],
    [
      'rdma_cm',
      hostWithProbe('rdma_cm', 'create: No such device'),
      /fake0; its provider is missing/,
      /ibverbs-providers/,
    ],
    ['device', { ...hostWithProbe('rdma_cm', 'No such device'), devices: () => [] }, /no RDMA device/, /rdma link/],
    ['device', { devices: () => [] }, /this host has no RDMA device/, /rdma link/],
    ['permissions', { deviceFilesProblem: () => 'uverbs0 cannot be opened' }, /uverbs0/, /--device=\/dev\/infiniband/],
    [
      'permissions',
      { ...hostWithProbe('rdma_cm', 'No such device'), deviceFilesProblem: () => 'uverbs0 cannot be opened' },
      /^uverbs0/,
      /--device=/,
    ],
    ['port', { devices: () => [fakeDevice({ state: 'DOWN' })] }, /fake0 \(port 1 down/, /ip link set/],
    ['port', { devices: () => [fakeDevice({ gids: [] })] }, /without a GID/, /give it an address/],
    [
      'memlock',
      { lockedMemory: () => ({ limitBytes: 8 * MIB, isPrivileged: false }) },
      /528 MiB .* may lock 8 MiB at most \(RLIMIT_MEMLOCK\)/,
      /ulimit -l unlimited.*LimitMEMLOCK.*Kubernetes/,
    ],
    ['memory', { availableBytes: () => 15 * MIB }, /16 MiB .* 15 MiB are available/, /global_segment_size/],
  ];
  for (const [step, overrides, reason, advice] of cases) {
    const support = rdmaSupport({ host: fabric.host(overrides), bytes: 16 * MIB });
    t.is(support.step, step);
    t.false(support.usable);
    t.regex(support.reason, reason);
    t.regex(support.advice, advice);
    t.notRegex(support.reason, /\n/);
  }
});

test('RDMA support: the limit on locked memory is this process’s, and does not count with CAP_IPC_LOCK', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-proc-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const look = (limit: string, capabilities: string) => {
    writeFileSync(join(folder, 'limits'), `Limit  Soft  Hard  Units\nMax locked memory  ${limit}  ${limit}  bytes\n`);
    writeFileSync(join(folder, 'status'), `Name:\tnode\nCapEff:\t${capabilities}\n`);
    return lockedMemory(folder);
  };
  const limited = look('8388608', '00000000a80425fb');
  t.is(lockableBytes(limited), 8 * MIB);
  t.is(lockedMemoryText(limited), '8 MiB at most (RLIMIT_MEMLOCK)');
  const privileged = look('8388608', '0000000000004000');
  t.is(lockableBytes(privileged), Number.POSITIVE_INFINITY);
  t.regex(lockedMemoryText(privileged), /CAP_IPC_LOCK; .* 8 MiB/);
  t.is(lockableBytes(look('unlimited', '0')), Number.POSITIVE_INFINITY);
  t.is(lockableBytes(lockedMemory('/nowhere')), Number.POSITIVE_INFINITY);
});

test('RDMA support: the files of the verbs devices', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-dev-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  t.regex(deviceFilesProblem('/nowhere'), /\/nowhere cannot be read \(ENOENT\)/);
  t.regex(deviceFilesProblem(folder), /has no verbs device/);
  writeFileSync(join(folder, 'uverbs0'), '');
  t.is(deviceFilesProblem(folder), '');
});
