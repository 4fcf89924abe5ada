import test from 'ava';
import { MemberAges } from '../../src/node/upkeep/member-ages.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';

const SETTLE_MS = 1000;

const membersOf = (incarnations: Readonly<Record<string, number>>): Map<string, NodeInfo> =>
  new Map(
    Object.entries(incarnations).map(([nodeId, incarnation]) => [
      nodeId,
      new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort: 1, incarnation }),
    ]),
  );

function agesOf(incarnation: number) {
  const clock = new ManualClock(5000);
  const ages = new MemberAges({ nodeId: 'self', incarnation }, SETTLE_MS, clock);
  let before = membersOf({ self: incarnation });
  /** Says which members are others, and of one that is not that it may be. */
  const see = (incarnations: Readonly<Record<string, number>>): void => {
    const after = membersOf(incarnations);
    const ids = [...new Set([...before.keys(), ...after.keys()])];
    const isOther = (id: string) => before.get(id)?.incarnation !== after.get(id)?.incarnation;
    ages.changed(after, ['self', ...ids.filter(isOther)]);
    before = after;
  };
  return { clock, ages, see };
}

test('ages: a new node takes others for as old as their starts are before its own', (t) => {
  const { clock, ages, see } = agesOf(10_000);
  clock.advance(10);
  see({ self: 10_000, old: 3000, twin: 10_000, later: 10_005 });
  t.deepEqual(
    ['self', 'old', 'twin', 'later'].map((nodeId) => ages.sinceMs(nodeId)),
    [5000, -2000, 5000, 5010],
  );
  clock.advance(10);
  see({ self: 10_000, old: 3000, unheard: 9000 });
  t.is(ages.sinceMs('unheard'), 4000);
  t.is(ages.sinceMs('twin'), 5020, 'who is no member');
});

test('ages: to a node that has been there for long, who appears is new, whatever its date', (t) => {
  const { clock, ages, see } = agesOf(10_000);
  clock.advance(SETTLE_MS);
  see({ self: 10_000, late: 11_000, behind: 1 });
  t.deepEqual([ages.sinceMs('late'), ages.sinceMs('behind')], [6000, 6000]);
  clock.advance(500);
  see({ self: 10_000, late: 11_000, behind: 11_400 });
  t.is(ages.sinceMs('late'), 6000);
  t.is(ages.sinceMs('behind'), 6500, 'another start of it');
});

test('ages: a node that goes on as another start of itself is new again', (t) => {
  const { clock, ages, see } = agesOf(10_000);
  clock.advance(5000);
  see({ self: 10_000, other: 14_000 });
  ages.restartAs(15_000);
  see({ self: 15_000, other: 14_000 });
  t.deepEqual([ages.sinceMs('self'), ages.sinceMs('other')], [10_000, 9000]);
});
