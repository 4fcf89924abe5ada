import test from 'ava';
import fc from 'fast-check';
import type { HostRegion } from '../../src/memory/host-region.js';
import { RegionTable } from '../../src/memory/region-table.js';

const SPACE = 60;

test('region table: of any overlapping, nested and equal regions, one that has the whole range is found', (t) => {
  const region = fc.record({ start: fc.integer({ min: 0, max: SPACE }), length: fc.integer({ min: 1, max: SPACE }) });
  const step = fc.record({ add: fc.option(region, { nil: undefined }), remove: fc.nat() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const table = new RegionTable();
      const live: HostRegion[] = [];
      for (const { add, remove } of steps) {
        if (add !== undefined) {
          const added = { ...add } as unknown as HostRegion;
          live.push(added);
          table.add(added);
        } else if (live.length > 0) {
          const [gone] = live.splice(remove % live.length, 1) as [HostRegion];
          table.remove(gone);
          table.remove(gone);
        }
        for (let addr = -1; addr <= 2 * SPACE; addr += 3) {
          for (const length of [0, 1, 7, SPACE]) {
            const hasIt = (each: HostRegion): boolean =>
              addr >= each.start && addr + length <= each.start + each.length;
            const found = table.find(addr, length);
            if (found === null) t.false(live.some(hasIt), `${addr} ${length}`);
            else t.true(hasIt(found) && live.includes(found), `${addr} ${length}`);
          }
        }
      }
    }),
    { numRuns: 100 },
  );
});
