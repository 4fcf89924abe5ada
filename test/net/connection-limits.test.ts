import test from 'ava';
import { UNAUTHENTICATED_ADDRESSES_MAX_COUNT } from '../../src/base/limits.js';
import { ConnectionLimits, type ConnectionRates } from '../../src/net/connection-limits.js';
import { ManualClock } from '../_support/clock.js';

const RATES: ConnectionRates = { perAddressPerS: 10, perAddressBurstCount: 4, perS: 20, burstCount: 16, pauseMs: 100 };

function verdicts(limits: ConnectionLimits, address: string, count: number): string[] {
  return Array.from({ length: count }, () => limits.admit(address));
}

function repeated(verdict: string, count: number): string[] {
  return Array(count).fill(verdict) as string[];
}

test('connection limits: an address has its share, and another one its own', (t) => {
  const clock = new ManualClock();
  const limits = new ConnectionLimits(clock, RATES);
  t.deepEqual(verdicts(limits, '10.0.0.1', 6), [...repeated('accept', 4), 'refuse', 'refuse']);
  t.deepEqual(verdicts(limits, '10.0.0.2', 4), repeated('accept', 4));
  clock.advance(200);
  t.deepEqual(verdicts(limits, '10.0.0.1', 3), ['accept', 'accept', 'refuse']);
});

test('connection limits: who has proved to belong here is not counted, however often it connects', (t) => {
  const limits = new ConnectionLimits(new ManualClock(), RATES);
  for (let i = 0; i < 100; i++) {
    t.is(limits.admit('10.0.0.1'), 'accept');
    limits.proved('10.0.0.1');
  }
  t.deepEqual(verdicts(limits, '10.0.0.1', 5), [...repeated('accept', 4), 'refuse'], 'and gets no more than the burst');
});

test('connection limits: too many from all addresses, refused ones too, end in a pause', (t) => {
  const clock = new ManualClock();
  const spread = new ConnectionLimits(clock, RATES);
  const all = Array.from({ length: 17 }, (_, i) => spread.admit(`10.0.0.${i}`));
  t.deepEqual(all, [...repeated('accept', 16), 'pause']);
  const single = new ConnectionLimits(clock, RATES);
  t.deepEqual(verdicts(single, '10.0.0.1', 29), [...repeated('accept', 4), ...repeated('refuse', 24), 'pause']);
  clock.advance(100);
  t.deepEqual(verdicts(single, '10.0.0.1', 4), ['accept', 'refuse', 'refuse', 'pause']);
});

test('connection limits: the networks of IPv6 are the addresses, and a mapped address is the one of IPv4', (t) => {
  const limits = new ConnectionLimits(new ManualClock(), RATES);
  const sameOrigins = [
    ['10.0.0.1', '::ffff:10.0.0.1'],
    ['2001:db8:0:1::1', '2001:db8:0:1:ffff:2:3:4'],
    ['2001:db8::1', '2001:db8::2:0:0:1'],
    ['::1', '::2'],
  ] as const;
  for (const [one, other] of sameOrigins) {
    verdicts(limits, one, 2);
    t.deepEqual(verdicts(limits, other, 3), ['accept', 'accept', 'refuse'], `${one} and ${other}`);
    for (let i = 0; i < 4; i++) limits.proved(one);
  }
  t.is(limits.addressesCount, sameOrigins.length);
  t.is(limits.admit('2001:db8:0:2::1'), 'accept');
});

test('connection limits: so many addresses are remembered and no more', (t) => {
  const clock = new ManualClock();
  const limits = new ConnectionLimits(clock);
  for (let i = 0; i < UNAUTHENTICATED_ADDRESSES_MAX_COUNT + 1000; i++) {
    limits.admit(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
    clock.advance(10);
  }
  t.is(limits.addressesCount, UNAUTHENTICATED_ADDRESSES_MAX_COUNT);
});
