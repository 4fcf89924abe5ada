import { blockSize } from './allocator';
import { Pool } from './pool';
import { NORMAL, setSlotPriority, setSlotTenant, slotBlock, slotPins, slotTenant } from './slot';

/** Gives a live page to another tenant, as its newest normal one. */
export function give(pool: Pool, slot: u32, number: u32): void {
  const at = pool.slots.at(slot);
  if (slotTenant(at) == number) return;
  const isPinned = slotPins(at) > 0;
  const from = pool.tenants.of(at);
  const to = pool.tenants.at(number);
  const units = blockSize(pool.allocator.at(slotBlock(at)));
  if (!isPinned) from.policy.remove(slot);
  from.usedUnits -= units;
  from.entries--;
  setSlotTenant(at, number);
  setSlotPriority(at, NORMAL);
  to.usedUnits += units;
  to.entries++;
  // What a policy knows of a pinned page it writes when it gets the page, even if the page leaves it again at once.
  to.policy.adopt(slot);
  if (isPinned) to.policy.remove(slot);
}
