import test from 'ava';
import { OTHER_ZONE, SAME_HOST, SAME_ZONE } from '../../src/net/distance.js';
import { MemberZones } from '../../src/node/upkeep/member-zones.js';
import { NodeInfo } from '../../src/types.js';

function member(nodeId: string, zone: string | undefined, controlHost = nodeId): NodeInfo {
  return new NodeInfo({ nodeId, controlHost, controlPort: 1, zone });
}

function zonesOf(...members: NodeInfo[]): { zones: MemberZones; change: (...changed: NodeInfo[]) => void } {
  const known = new Map<string, NodeInfo>();
  const zones = new MemberZones(members[0] as NodeInfo);
  const change = (...changed: NodeInfo[]): void => {
    for (const info of changed) known.set(info.nodeId, info);
    zones.changed(
      new Map(known),
      changed.map(({ nodeId }) => nodeId),
    );
  };
  change(...members);
  return { zones, change };
}

test('member zones: they count for the ring when all members know of them, and one has one', (t) => {
  const { zones, change } = zonesOf(member('a', 'x'), member('b', ''));
  t.deepEqual([...(zones.forRing() ?? [])], [['a', 'x']]);
  change(member('c', undefined));
  t.is(zones.forRing(), undefined);
  change(member('c', 'y'));
  t.deepEqual(
    [...(zones.forRing() ?? [])],
    [
      ['a', 'x'],
      ['c', 'y'],
    ],
  );
  change(member('a', ''), member('c', ''));
  t.is(zones.forRing(), undefined);
});

test('member zones: a member that has gone does not count', (t) => {
  const zones = new MemberZones(member('a', 'x'));
  zones.changed(new Map([member('a', 'x'), member('old', undefined)].map((info) => [info.nodeId, info])), ['old']);
  t.is(zones.forRing(), undefined);
  zones.changed(new Map([['a', member('a', 'x')]]), ['old']);
  t.not(zones.forRing(), undefined);
});

test('member zones: the same host is nearest, then the same zone', (t) => {
  const { zones, change } = zonesOf(member('a', 'x', 'h'), member('b', 'x', 'h'), member('c', 'x'), member('d', 'y'));
  change(member('e', ''));
  const far = zones.distancesFrom('a');
  t.deepEqual(
    ['a', 'b', 'c', 'd', 'e', 'stranger'].map((nodeId) => far?.(nodeId)),
    [SAME_HOST, SAME_HOST, SAME_ZONE, OTHER_ZONE, OTHER_ZONE, OTHER_ZONE],
  );
  t.is(zones.distancesFrom('e'), undefined, 'a member without a zone');
  t.is(zones.distancesFrom('stranger'), undefined);
  change(member('c', 'y'));
  t.is(zones.distancesFrom('a')?.('c'), OTHER_ZONE);
});
