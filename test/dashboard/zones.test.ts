import test from 'ava';
import { type Member, memberLine, sharedBy } from '../../src/dashboard/data/members.js';
import { MEMBER_COLUMNS } from '../../src/dashboard/views/members-view.js';

function memberOf(nodeId: string, report: object): Member {
  const about = { state: 'up', sinceMs: 0, isThis: false, ringShare: 0.5, controlEndpoint: '', error: '', reportMs: 0 };
  return { nodeId, ...about, report } as Member;
}

test('dashboard zones: a member has its zone and the share that it reads from others, where any has a zone', (t) => {
  const read_pages = { host: 1, zone: 2, other: 1 };
  const lines = [
    memberLine(memberOf('a', { zone: 'rack-1', by_distance: { read_pages } })),
    memberLine(memberOf('b', {})),
  ];
  const shown = (key: string) => {
    const column = MEMBER_COLUMNS.find((each) => each.key === key);
    return lines.map((line) => (column?.value(line) == null ? '' : column.text(line)));
  };
  t.deepEqual(shown('zone'), ['rack-1', '']);
  t.regex(shown('far_share')[0] ?? '', /^25/);
  t.is(shown('far_share')[1], '');
  t.true(sharedBy(lines).hasZones);
  t.false(sharedBy(lines.slice(1)).hasZones);
});
