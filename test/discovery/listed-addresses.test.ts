import test from 'ava';
import type { Endpoint } from '../../src/base/environment/network.js';
import { type JoinedState, ListedAddresses } from '../../src/discovery/sources/address-source.js';

const of = (...hosts: number[]): Endpoint[] => hosts.map((host) => ({ host: `h${host}`, port: 1 }));
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const live = (...hosts: number[]) => {
  const names = new Set(hosts.map((host) => `h${host}:1`));
  return (): ReadonlySet<string> => names;
};
const shown = (endpoints: readonly Endpoint[]): string => endpoints.map(({ host }) => host.slice(1)).join();

function listing(seats = 3) {
  const addresses = new ListedAddresses({ seats, keptMs: 300_000 });
  const at = (nowMs: number, state: Partial<JoinedState> = {}): string => {
    const listed = addresses.listed({ nowMs, isJoined: true, isHead: false, live: live(), ...state });
    addresses.verify();
    return shown(listed);
  };
  return { addresses, at };
}

test('listed addresses: the first ones, and those that the source ceases to name for minutes', (t) => {
  const { addresses, at } = listing();
  t.is(at(0), '');
  addresses.answered(of(...range(9)));
  t.is(at(1), '0,1,2');
  addresses.answered([]);
  t.is(at(2), '0,1,2');
  addresses.answered(of(7, 8));
  t.is(at(3), '7,8,0,1,2');
  t.is(at(300_002), '7,8,0,1,2');
  t.is(at(300_003), '7,8');
});

test('listed addresses: the first live ones are listed beside dead ones', (t) => {
  const { addresses, at } = listing();
  addresses.answered(of(...range(9)));
  t.is(at(0, { live: live(2, 5, 7, 8) }), '0,1,2,5,7');
});

test('listed addresses: a node without a master tries all others in time, at most 16 at once', (t) => {
  const { addresses, at } = listing();
  addresses.answered(of(...range(100)));
  const tried = new Set<string>();
  t.is(at(0, { isJoined: false }), '0,1,2');
  t.is(at(2_000, { isJoined: false }), '0,1,2,3,4,5');
  for (let ms = 4_000; ms < 120_000; ms += 2_000) {
    const listed = at(ms, { isJoined: false }).split(',');
    t.true(listed.length <= 16);
    for (const one of listed) tried.add(one);
  }
  t.is(tried.size, 100);
  t.is(at(120_000), '0,1,2');
});

test('listed addresses: a node with a master tries one after the other those that belong to no member', (t) => {
  const { addresses, at } = listing();
  addresses.answered(of(...range(6)));
  const state = { isHead: true, live: live(0, 1, 2, 4) };
  t.deepEqual(
    [0, 3_000, 6_000].map((ms) => at(ms, state)),
    ['0,1,2,3', '0,1,2,5', '0,1,2,3'],
  );
  t.is(at(9_000, { ...state, live: live(...range(6)) }), '0,1,2');
});
