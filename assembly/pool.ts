import { Policy } from './policy/policy';
import { NONE, Records } from './records';
import {
  describeSlot,
  GHOST,
  HELD,
  LIVE,
  NORMAL,
  SLOT_BYTES,
  setSlotPins,
  setSlotPriority,
  setSlotStatus,
  setSlotTenant,
  slotBlock,
  slotBytes,
  slotHigh,
  slotLow,
  slotNext,
  slotPins,
  slotStatus,
  slotTenant,
  VACANT,
} from './slot';
import { Allocator, blockOffset, blockSize, setBlockSlot, setBlockState, WAITING } from './space/allocator';
import { Quarantine } from './space/quarantine';
import { canEverPlace } from './space/reclaimable';
import { Table } from './table';
import { Tenant, Tenants } from './tenants';

/** Victims of one publish after which it is checked whether evicting more can succeed at all. */
const VICTIMS_BEFORE_CHECK: u32 = 64;

/**
 * Index, space and order of eviction of one pool. Holds no page bytes and knows no time but what it
 * is given. A range is FREE, or USED by a live page, or WAITING: in quarantine (first in, first
 * out), or held by the pins of a page that was removed. Ranges only leave WAITING for FREE.
 */
@unmanaged
export class Pool {
  slots: Records;
  table: Table;
  allocator: Allocator;
  quarantine: Quarantine;
  tenants: Tenants;
  private policyKind: u32;
  alignmentBytes: u64;
  /**
   * Whether no page is evicted for a later one of its own request, so that what stays of one that is too long is its
   * head.
   */
  keepsHeads: bool;
  /** Whether the next victim of the running publish belongs to its own request. */
  private isOwnNext: bool;
  private isPublishing: bool;
  /** Units of removed pages that are still pinned. */
  heldUnits: u64;
  /** Latest time passed in. */
  private nowMs: f64;
  usedBytes: u64;
  entries: u32;
  /** Number of live pinned pages. */
  pinned: u32;
  evictions: u64;
  /** Number of pages published or restored so far, refused ones included, modulo 2^32. */
  stamp: u32;
  /** Slots evicted by the running call, in order. */
  evicted: usize;
  evictedCount: u32;
  private evictedCapacity: u32;
  /** Never read. Keeps the compiler from removing the prefetching loads of `warming.ts`. */
  warmed: u32;

  constructor(capacityBytes: u64, segmentBytes: u64, alignmentBytes: u64, policyKind: u32) {
    const slots = new Records(SLOT_BYTES);
    const allocator = new Allocator(capacityBytes / alignmentBytes, segmentBytes / alignmentBytes);
    this.slots = slots;
    this.table = new Table(slots);
    this.allocator = allocator;
    this.quarantine = new Quarantine(allocator);
    this.tenants = new Tenants(new Policy(policyKind, slots, 0, capacityBytes, alignmentBytes));
    this.policyKind = policyKind;
    this.alignmentBytes = alignmentBytes;
    this.keepsHeads = false;
    this.isOwnNext = false;
    this.isPublishing = false;
    this.heldUnits = 0;
    this.nowMs = 0;
    this.usedBytes = 0;
    this.entries = 0;
    this.pinned = 0;
    this.evictions = 0;
    this.stamp = 0;
    this.evictedCapacity = 64;
    this.evicted = heap.alloc(64 * 4);
    this.evictedCount = 0;
    this.warmed = 0;
  }

  /**
   * A further tenant, with a quota in bytes: before there is any page. Its order of eviction takes the maximum for the
   * capacity. Returns its number.
   */
  addTenant(minBytes: u64, maxBytes: u64): u32 {
    const unit = this.alignmentBytes;
    const policy = new Policy(this.policyKind, this.slots, this.tenants.count, max(unit, maxBytes), unit);
    return this.tenants.add(new Tenant(policy, minBytes / unit, maxBytes / unit));
  }

  /** Starts a call that may evict: takes the time and frees what has waited long enough. */
  begin(nowMs: f64): void {
    this.nowMs = nowMs;
    this.evictedCount = 0;
    this.quarantine.release(nowMs);
  }

  /** Publishes a page. Returns its slot, or NONE; even then, an existing page with the digest is gone. */
  publish(low: u64, high: u64, bytes: u64, tenant: u32, priority: u32): u32 {
    const stamp = this.stamp++;
    const present = this.takeOut(this.table.find(low, high), tenant);
    if (present != NONE && slotPins(this.slots.at(present)) > 0) {
      this.remove(present);
      return NONE;
    }
    const wasGhost = present != NONE && slotStatus(this.slots.at(present)) == GHOST;
    const policy = this.tenants.at(tenant).policy;
    const known = present == NONE ? 0 : policy.recall(present);
    if (present != NONE && !wasGhost) this.remove(present);
    this.isPublishing = this.keepsHeads && priority == NORMAL;
    this.isOwnNext = false;
    const block = this.place(this.unitsOf(bytes), tenant);
    this.isPublishing = false;
    if (block == NONE) {
      if (this.isOwnNext) this.refuse(low, high, bytes, stamp, tenant, known);
      return NONE;
    }
    // Checked only now, because making room may have forgotten this very ghost. Its slot was not reused since.
    const isGhost = wasGhost && slotStatus(this.slots.at(present)) == GHOST;
    if (isGhost) policy.forgetGhost(present);
    const slot = isGhost ? present : this.slots.add();
    this.describe(slot, block, low, high, bytes, stamp, tenant, priority);
    if (!isGhost) this.table.insert(low, high, slot);
    policy.insert(slot, known, isGhost);
    return slot;
  }

  /**
   * Refuses a new page that would have to take the place of an earlier one of its request. The policy learns of it as
   * of an evicted page.
   */
  private refuse(low: u64, high: u64, bytes: u64, stamp: u32, number: u32, known: u32): void {
    const policy = this.tenants.at(number).policy;
    const ghost = this.table.find(low, high);
    if (ghost != NONE) policy.forgetGhost(ghost);
    const slot = ghost == NONE ? this.slots.add() : ghost;
    const at = this.slots.at(slot);
    describeSlot(at, low, high, bytes, NONE, 0, stamp);
    setSlotTenant(at, number);
    setSlotPriority(at, NORMAL);
    setSlotStatus(at, GHOST);
    if (ghost == NONE) this.table.insert(low, high, slot);
    if (!policy.refuse(slot, known)) return this.forget(slot);
    this.forgetOverdue(policy);
  }

  /** Whether only `restore` has ever taken space, and none was freed. */
  get canRestore(): bool {
    return this.allocator.canRestore && this.quarantine.units == 0 && this.heldUnits == 0;
  }

  /**
   * Slot of the page now at that offset, or NONE: see {@link Allocator.allocateAt}, or its digest is there. Only while
   * `canRestore`, so that there is no ghost either.
   */
  restore(low: u64, high: u64, bytes: u64, offset: u64, tenant: u32): u32 {
    const stamp = this.stamp++;
    if (this.table.find(low, high) != NONE) return NONE;
    const block = this.allocator.allocateAt(offset, this.unitsOf(bytes));
    if (block == NONE) return NONE;
    const slot = this.slots.add();
    this.describe(slot, block, low, high, bytes, stamp, tenant, NORMAL);
    this.table.insert(low, high, slot);
    this.tenants.at(tenant).policy.adopt(slot);
    return slot;
  }

  /** Evicts the next victim for a page of this tenant; returns its slot, or NONE if none may be evicted. */
  evictNext(tenant: u32): u32 {
    const payer = this.tenants.payerFor(tenant);
    if (payer == NONE) return NONE;
    this.tenants.take(payer, tenant);
    return this.evictOf(this.tenants.at(payer));
  }

  /**
   * Evicts a page of a tenant above its maximum, which smaller quotas or pages given to it may have caused; returns its
   * slot, or NONE.
   */
  evictOverMax(): u32 {
    const tenant = this.tenants.overMax();
    return tenant == NONE ? NONE : this.evictOf(this.tenants.at(tenant));
  }

  /** Changes the priority of a live page, which becomes the newest one of its order. */
  setPriority(slot: u32, priority: u32): void {
    const at = this.slots.at(slot);
    this.tenants.of(at).policy.setPriority(slot, priority, slotPins(at) > 0);
  }

  /** Notes that a live page will be asked for in so many milliseconds; see `Yield.expect`. Pinned pages stay as they are. */
  expect(slot: u32, inMs: f64, newer: u32): void {
    const at = this.slots.at(slot);
    if (slotPins(at) > 0) return;
    const policy = this.tenants.of(at).policy;
    policy.tellTime(this.nowMs);
    policy.expect(slot, inMs, newer);
  }

  /** The live page of that digest, or NONE. */
  @inline
  find(low: u64, high: u64): u32 {
    const slot = this.table.find(low, high);
    return slot != NONE && slotStatus(this.slots.at(slot)) == LIVE ? slot : NONE;
  }

  @inline
  use(slot: u32): void {
    const at = this.slots.at(slot);
    const tenant = this.tenants.of(at);
    this.tenants.meet(tenant);
    tenant.policy.use(slot, slotPins(at) > 0);
  }

  /** Makes a page the newest one, as if used, without learning from it. */
  @inline
  renew(slot: u32): void {
    const at = this.slots.at(slot);
    this.tenants.of(at).policy.renew(slot, slotPins(at) > 0);
  }

  /** Removes a live page from the index; its range waits for its pins, then in quarantine. */
  remove(slot: u32): void {
    const at = this.slots.at(slot);
    if (slotStatus(at) == HELD) return;
    this.usedBytes -= slotBytes(at);
    this.entries--;
    const tenant = this.tenants.of(at);
    tenant.entries--;
    tenant.policy.drop(slot, slotPins(at) > 0);
    if (slotPins(at) == 0) {
      this.vacate(slot);
      return;
    }
    setSlotStatus(at, HELD);
    this.pinned--;
    const block = this.allocator.at(slotBlock(at));
    setBlockState(block, WAITING);
    this.heldUnits += blockSize(block);
  }

  pin(slot: u32): void {
    const at = this.slots.at(slot);
    const pins = slotPins(at);
    setSlotPins(at, pins + 1);
    if (pins > 0) return;
    this.tenants.of(at).policy.remove(slot);
    this.pinned++;
  }

  /** Ends one pin. False: no page with that digest is pinned. */
  unpin(low: u64, high: u64): bool {
    const slot = this.table.find(low, high);
    if (slot == NONE || slotStatus(this.slots.at(slot)) == GHOST) return false;
    const at = this.slots.at(slot);
    const pins = slotPins(at);
    if (pins == 0) return false;
    setSlotPins(at, pins - 1);
    if (pins > 1) return true;
    if (slotStatus(at) == LIVE) {
      this.pinned--;
      this.tenants.of(at).policy.restore(slot);
    } else {
      this.heldUnits -= blockSize(this.allocator.at(slotBlock(at)));
      this.vacate(slot);
    }
    return true;
  }

  clear(): void {
    for (let slot: u32 = 0; slot < this.slots.top; slot++) {
      if (slotStatus(this.slots.at(slot)) == LIVE) this.remove(slot);
    }
  }

  /** Writes the slots of all live pages as u32, next victim first, pinned ones last. */
  writeOrder(out: usize): void {
    out = this.tenants.writeOrder(out);
    for (let slot: u32 = 0; slot < this.slots.top; slot++) {
      const at = this.slots.at(slot);
      if (slotStatus(at) != LIVE || slotPins(at) == 0) continue;
      store<u32>(out, slot);
      out += 4;
    }
  }

  dispose(): void {
    this.tenants.dispose();
    this.table.dispose();
    this.slots.dispose();
    this.allocator.dispose();
    this.quarantine.dispose();
    heap.free(this.evicted);
    heap.free(changetype<usize>(this));
  }

  /**
   * A used block, evicting as needed; NONE when that cannot help. Victims go strictly in the policy's order: seeking
   * among the next ones for a neighbour of free space was measured, and won less space than it cost in hits.
   */
  private place(units: u64, tenant: u32): u32 {
    if (units > this.allocator.segmentUnits || !this.makeQuota(units, this.tenants.at(tenant))) return NONE;
    let block = this.allocator.allocate(units);
    const checkAt = this.evictedCount + VICTIMS_BEFORE_CHECK;
    let isChecked = false;
    while (block == NONE) {
      if (!isChecked && this.evictedCount == checkAt) {
        if (!canEverPlace(this, units, tenant)) return NONE;
        isChecked = true;
      }
      if (!this.makeRoom(tenant)) return NONE;
      block = this.allocator.allocate(units);
    }
    return block;
  }

  /** Evicts pages of the tenant until it may have `units` more units. False: it never may. */
  private makeQuota(units: u64, tenant: Tenant): bool {
    if (units > tenant.maxUnits) return false;
    while (tenant.usedUnits > tenant.maxUnits - units) if (this.evictOf(tenant) == NONE) return false;
    return true;
  }

  /** Evicts one victim, or, if there is none, ends the oldest quarantine. False: neither is allowed. */
  private makeRoom(tenant: u32): bool {
    return this.evictNext(tenant) != NONE || this.quarantine.cutShort();
  }

  @inline
  private unitsOf(bytes: u64): u64 {
    return max<u64>(1, (bytes + this.alignmentBytes - 1) / this.alignmentBytes);
  }

  /** Ties a live page to its block and counts it. */
  private describe(slot: u32, block: u32, low: u64, high: u64, bytes: u64, stamp: u32, number: u32, priority: u32): void {
    const blockAt = this.allocator.at(block);
    setBlockSlot(blockAt, slot);
    const at = this.slots.at(slot);
    describeSlot(at, low, high, bytes, block, blockOffset(blockAt), stamp);
    setSlotTenant(at, number);
    setSlotPriority(at, priority);
    const tenant = this.tenants.at(number);
    tenant.usedUnits += blockSize(blockAt);
    tenant.entries++;
    this.usedBytes += bytes;
    this.entries++;
  }

  /** Evicts the next page of the tenant; returns its slot, or NONE if none may be evicted. */
  private evictOf(tenant: Tenant): u32 {
    if (this.quarantine.isClosed) return NONE;
    tenant.policy.tellTime(this.nowMs);
    const victim = tenant.policy.victim();
    if (victim == NONE) return NONE;
    if (this.isPublishing && tenant.policy.isOwn(victim, this.tenants.requests.current)) {
      this.isOwnNext = true;
      return NONE;
    }
    this.evict(victim, tenant);
    return victim;
  }

  private evict(slot: u32, tenant: Tenant): void {
    const policy = tenant.policy;
    const isKept = policy.evict(slot);
    this.usedBytes -= slotBytes(this.slots.at(slot));
    this.entries--;
    this.evictions++;
    tenant.entries--;
    tenant.evictions++;
    if (this.evictedCount == this.evictedCapacity) {
      this.evictedCapacity *= 2;
      this.evicted = heap.realloc(this.evicted, <usize>this.evictedCapacity << 2);
    }
    store<u32>(this.evicted + (<usize>this.evictedCount << 2), slot);
    this.evictedCount++;
    this.retire(slot, tenant);
    if (!isKept) return this.forget(slot);
    setSlotStatus(this.slots.at(slot), GHOST);
    this.forgetOverdue(policy);
  }

  private forgetOverdue(policy: Policy): void {
    for (let ghost = policy.overdueGhost(); ghost != NONE; ghost = policy.overdueGhost()) {
      policy.expireGhost(ghost);
      this.forget(ghost);
    }
  }

  /**
   * What is under the digest, if it is of this tenant; what another one has there, page or ghost, goes: NONE, unless it
   * is pinned.
   */
  @inline
  private takeOut(present: u32, tenant: u32): u32 {
    if (this.tenants.count == 1 || present == NONE) return present;
    const at = this.slots.at(present);
    if (slotTenant(at) == tenant || slotPins(at) > 0) return present;
    if (slotStatus(at) == GHOST) {
      this.tenants.of(at).policy.forgetGhost(present);
      this.forget(present);
    } else {
      this.remove(present);
    }
    return NONE;
  }

  private vacate(slot: u32): void {
    this.retire(slot, this.tenants.of(this.slots.at(slot)));
    this.forget(slot);
  }

  /** Removes a slot from the table and makes it vacant. */
  private forget(slot: u32): void {
    const at = this.slots.at(slot);
    this.table.remove(slotLow(at), slotHigh(at), slot);
    setSlotStatus(at, VACANT);
    this.slots.remove(slot);
  }

  /** Sends the slot's range on its way to reuse. */
  private retire(slot: u32, tenant: Tenant): void {
    const block = slotBlock(this.slots.at(slot));
    tenant.usedUnits -= blockSize(this.allocator.at(block));
    setBlockSlot(this.allocator.at(block), NONE);
    this.quarantine.add(block, this.nowMs);
  }
}
