import { Pool } from './pool';
import { NORMAL, setSlotPriority, setSlotTenant, slotBlock, slotPins, slotTenant } from './slot';
import { blockSize } from './space/allocator';

/** Moves a live page to another tenant, as its newest normal page. */
export function give(pool: Pool, slot: u32, number: u32): void {
  const at = pool.slots.at(slot);
  if (slotTenant(at) == number) return;
  const isPinned = slotPins(at) > 0;
  const from = pool.tenants.of(at);
  const to = pool.tenants.at(number);
  const units = blockSize(pool.allocator.at(slotBlock(at)));
  from.policy.drop(slot, isPinned);
  from.usedUnits -= units;
  from.entries--;
  setSlotTenant(at, number);
  setSlotPriority(at, NORMAL);
  to.usedUnits += units;
  to.entries++;
  // The policy records what it knows of a page when it gets the page, so a pinned page is added, then removed again.
  to.policy.adopt(slot);
  if (isPinned) to.policy.remove(slot);
}
