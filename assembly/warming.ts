import { PageMap } from './page-map';
import { Pool } from './pool';
import { NONE } from './records';
import { slotHigh, slotLow, slotNext } from './slot';

/** Loads what a call will look for in the index into the cache; for calls with several keys. */
export function warm(pool: Pool, digests: usize, count: u32): void {
  let sum: u32 = 0;
  for (const end = digests + (<usize>count << 4); digests < end; digests += 16) {
    sum += pool.table.warm(load<u64>(digests), load<u64>(digests, 8));
  }
  pool.warmed = sum;
}

/** Loads what as many publishes will probably remove from the index into the cache. */
export function warmLeaving(pool: Pool, count: u32, tenant: u32): void {
  let sum: u32 = 0;
  for (let slot = pool.tenants.at(tenant).policy.leaving(); slot != NONE && count > 0; count--) {
    const at = pool.slots.at(slot);
    sum += pool.table.warm(slotLow(at), slotHigh(at));
    slot = slotNext(at);
  }
  pool.warmed = sum;
}

/** Loads what a call will look for in a map into the cache; for calls with several keys. */
export function warmMap(map: PageMap, positions: usize, count: u32): void {
  let sum: u32 = 0;
  for (const end = positions + (<usize>count << 3); positions < end; positions += 8) {
    sum += map.warm(load<u64>(positions));
  }
  map.warmed = sum;
}
