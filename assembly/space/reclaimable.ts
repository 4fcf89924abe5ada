import { Pool } from '../pool';
import { NONE } from '../records';
import { slotPins, slotTenant } from '../slot';
import { blockSize, blockSlot, blockState, blockUpper, FREE } from './allocator';

/**
 * Whether any segment of the pool could have `units` in one piece, given pins, pages that may not be evicted for the
 * tenant, and ranges whose wait may not be cut short. Tenants above their minimum may reach it before the piece is
 * free; evicting was then in vain.
 */
export function canEverPlace(pool: Pool, units: u64, tenant: u32): bool {
  const allocator = pool.allocator;
  for (let segment: u32 = 0; segment < allocator.segments; segment++) {
    let run: u64 = 0;
    let block = segment;
    while (block != NONE) {
      const at = allocator.at(block);
      run = isReclaimable(pool, at, tenant) ? run + blockSize(at) : 0;
      if (run >= units) return true;
      block = blockUpper(at);
    }
  }
  return false;
}

function isReclaimable(pool: Pool, block: usize, tenant: u32): bool {
  if (blockState(block) == FREE) return true;
  const slot = blockSlot(block);
  if (slot == NONE) return !pool.quarantine.neverReuseEarly;
  const at = pool.slots.at(slot);
  if (slotPins(at) > 0) return false;
  return pool.tenants.count == 1 || slotTenant(at) == tenant || pool.tenants.of(at).excessUnits > 0;
}
