import test from 'ava';
import { formatEndpoint } from '../../src/base/environment/network.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { chooseMasters, MasterChoice } from '../../src/discovery/masters/masters.js';
import type { NodeInfo } from '../../src/types.js';
import { nodeOf } from '../_support/discovery/masters.js';

const LISTED = ['h0', 'h1'].map((host) => ({ host, port: 6000 }));

test('masters: those of members that change are those of all members, looked at anew', (t) => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = seededRandom(seed);
    const below = (limit: number): number => random.u32() % limit;
    const rule = { listed: LISTED, maxMasters: 1 + below(4) };
    const choice = new MasterChoice(rule);
    let members: ReadonlyMap<string, NodeInfo> = new Map();
    for (let change = 0; change < 60; change++) {
      const next = new Map(members);
      const ids = Array.from({ length: 1 + below(3) }, () => `n${below(16)}`);
      for (const id of ids) {
        const init = { controlHost: `h${below(10)}`, incarnation: below(100), isListed: below(12) === 0 };
        if (below(3) === 0) next.delete(id);
        else next.set(id, nodeOf(id, init));
      }
      members = next;
      const dead = new Set(below(8) === 0 ? [`h${below(10)}:6000`] : []);
      const masters = choice.follow(members, ids, dead).map(formatEndpoint);
      const anew = chooseMasters(members.values(), rule, dead).map(formatEndpoint);
      t.deepEqual(masters, anew, `seed ${seed}, change ${change}`);
    }
  }
});
