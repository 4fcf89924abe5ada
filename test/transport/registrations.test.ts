import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { Registrations, registrationOf } from '../../src/transport/tcp/serving/registrations.js';
import { content } from '../_support/support.js';

test('registrations: what is found shows the memory of the region, within its bounds', (t) => {
  const region = HostRegion.allocate(10_000);
  t.teardown(() => region.free());
  region.bytes().set(content(1, 10_000));
  const registrations = new Registrations(() => {});
  registrations.add(registrationOf(region, 7, region.start + 1000, 2000));
  const found = registrations.find(7, region.start + 1000, 2000);
  t.deepEqual(found?.segments[0]?.subarray(0, 10_000), content(1, 10_000));
  region.bytes()[1500] = 0;
  t.is(found?.segments[0]?.[1500], 0);
  for (const [addr, length] of [
    [region.start + 999, 10],
    [region.start + 1000, 2001],
    [region.start + 3000, 1],
  ] as const) {
    t.is(registrations.find(7, addr, length), undefined);
  }
  t.is(registrations.find(8, region.start + 1000, 1), undefined);
});

test('registrations: a region that has been freed meanwhile is not one', (t) => {
  const region = HostRegion.allocate(10_000);
  const registrations = new Registrations(() => {});
  const registration = registrationOf(region, 7, region.start, 10_000);
  region.free();
  registrations.add(registration);
  t.is(registrations.find(7, region.start, 1), undefined);
});

test('registrations: only shared memory crosses to the serving thread, never a copy of a region', (t) => {
  const region = HostRegion.allocate(10_000);
  t.teardown(() => region.free());
  const { segments } = registrationOf(region, 7, region.start, 10_000);
  t.true(segments.every(({ buffer }) => buffer instanceof SharedArrayBuffer));
});
