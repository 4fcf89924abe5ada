import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { checkAddon, checkHugePages, checkLockedMemory, checkRdma, checkRdmaTrip } from '../../src/cli/doctor/rdma.js';
import { FakeFabric, fakeDevice, nativeFailure } from '../_support/native/fake-rdma.js';

const fabric = new FakeFabric();

test('doctor, RDMA: the addon, and how it takes checksums', (t) => {
  t.like(checkAddon({ addon: fabric.addon(), reason: '' }), {
    state: 'ok',
    detail: 'loaded, with RDMA; checksums by fake',
  });
  const without = checkAddon({ addon: fabric.addon({ hasRdma: false }), reason: '' });
  t.regex(without.detail, /built without RDMA/);
  t.like(checkAddon({ addon: null, reason: 'it is damaged' }), { state: 'warning' });
});

test('doctor, RDMA: every port with its GIDs, and whether RDMA can be used', (t) => {
  const [rdma, port] = checkRdma(fabric.host());
  t.like(rdma, { subject: 'RDMA', state: 'ok', detail: 'usable (fake0)' });
  t.like(port, {
    subject: 'fake0/1',
    state: 'ok',
    detail: 'active, Ethernet, 1 Gb/sec; GID 1 RoCE v2 10.77.0.1 (eth0)',
  });
});

test('doctor, RDMA: the step that fails, why, and what to do', (t) => {
  const down = checkRdma(fabric.host({ devices: () => [fakeDevice({ state: 'DOWN' })] }));
  t.like(down[0], { state: 'warning' });
  t.regex(down[0]?.detail ?? '', /step "port" fails: .*fake0 \(port 1 down/);
  t.regex(down[0]?.advice ?? '', /ip link set/);
  t.like(down[1], { subject: 'fake0/1', state: 'warning' });
  const [none, ...ports] = checkRdma(fabric.host({ devices: () => [] }));
  t.like(none, { state: 'n/a' }, 'a machine without the hardware has no problem');
  t.regex(none?.detail ?? '', /step "device" fails: this host has no RDMA device/);
  t.deepEqual(ports, []);
});

test('doctor, RDMA: a read through the device', async (t) => {
  t.like((await checkRdmaTrip(fabric.host()))[0], { subject: 'RDMA trip', state: 'ok' });
  t.deepEqual(await checkRdmaTrip(fabric.host({ devices: () => [] })), []);
  const broken = new FakeFabric();
  broken.createFailure = nativeFailure('rdma_bind_addr', 99, 'rdma_bind_addr: Cannot assign requested address');
  const [finding] = await checkRdmaTrip(broken.host());
  t.like(finding, { state: 'problem' });
  t.regex(finding?.detail ?? '', /rdma_bind_addr: Cannot assign/);
});

test('doctor, RDMA: a read through each configured device, and through no other', async (t) => {
  const devices = () => ['fake0', 'fake1', 'fake2'].map((name) => ({ ...fakeDevice(), name }));
  const through = async (config: Parameters<typeof checkRdmaTrip>[1]) =>
    (await checkRdmaTrip(fabric.host({ devices }), config)).map(({ detail }) => /through (\w+)/.exec(detail)?.[1]);
  t.deepEqual(await through({}), ['fake0']);
  t.deepEqual(await through({ deviceName: 'fake2' }), ['fake2']);
  t.deepEqual(await through({ deviceNames: ['fake2', 'fake1'] }), ['fake2', 'fake1']);
  await t.throwsAsync(through({ deviceName: 'fake7' }), { message: /"device_name": there is no RDMA device fake7/ });
});

test('doctor, RDMA: too little memory that can be locked matters where there is a device', (t) => {
  const lockedMemory = () => ({ limitBytes: 2 ** 23, isPrivileged: false });
  t.like(checkLockedMemory(fabric.host({ lockedMemory })), { state: 'warning' });
  t.regex(checkLockedMemory(fabric.host({ lockedMemory })).advice ?? '', /ulimit -l/);
  t.like(checkLockedMemory(fabric.host({ lockedMemory, devices: () => [] })), { state: 'n/a' });
});

test('doctor, RDMA: huge pages', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-mm-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  t.is(checkHugePages(folder).detail, 'none reserved; transparent ones: unknown, for shared memory: unknown');
  mkdirSync(join(folder, 'hugepages/hugepages-2048kB'), { recursive: true });
  mkdirSync(join(folder, 'transparent_hugepage'));
  writeFileSync(join(folder, 'hugepages/hugepages-2048kB/nr_hugepages'), '512\n');
  writeFileSync(join(folder, 'hugepages/hugepages-2048kB/free_hugepages'), '500\n');
  writeFileSync(join(folder, 'transparent_hugepage/enabled'), 'always [madvise] never\n');
  writeFileSync(join(folder, 'transparent_hugepage/shmem_enabled'), 'always within_size advise [never] deny force\n');
  const { detail } = checkHugePages(folder);
  t.is(detail, '512 of 2 MiB reserved, 500 free; transparent ones: madvise, for shared memory: never');
});
