import { CALLER_SHIFT, CONTINUES } from './policy/about';
import { Policy } from './policy/policy';
import { Requests } from './policy/requests';
import { NONE } from './records';
import { slotTenant } from './slot';

/** Most tenants of a pool: a slot has one byte for the number of its tenant. */
export const TENANTS_MAX: u32 = 256;

/**
 * A user of a pool with its own quota. Each tenant has its own order of eviction over the slots of the pool, so that
 * victims of one tenant do not depend on the others.
 */
@unmanaged
export class Tenant {
  policy: Policy;
  /** Units guaranteed against other tenants, to within one page. */
  minUnits: u64;
  /** Largest number of units that it may have. */
  maxUnits: u64;
  /** Units of its pages, including pages that were removed and are still pinned. */
  usedUnits: u64;
  /** Number of findable pages. */
  entries: u32;
  evictions: u64;
  /** Fewest units that it had when one of its pages had to go for another tenant; always above the minimum. */
  takenUnits: u64;
  /** Number of the last call that its policy was told of. */
  call: u32;

  constructor(policy: Policy, minUnits: u64, maxUnits: u64) {
    this.policy = policy;
    this.minUnits = minUnits;
    this.maxUnits = maxUnits;
    this.usedUnits = 0;
    this.entries = 0;
    this.evictions = 0;
    this.takenUnits = u64.MAX_VALUE;
    this.call = 0;
  }

  /** Units above the minimum, which others may take. */
  @inline
  get excessUnits(): u64 {
    return this.usedUnits > this.minUnits ? this.usedUnits - this.minUnits : 0;
  }

  dispose(): void {
    this.policy.dispose();
    heap.free(changetype<usize>(this));
  }
}

/** The tenants of a pool. Number 0 always exists; if it is the only one, it has no limits. */
@unmanaged
export class Tenants {
  private list: usize;
  /** Tenant 0. */
  private first: Tenant;
  count: u32;
  /** The running call, or the last one: its number, its tenant, and what policies are told of it. */
  private call: u32;
  private caller: Tenant;
  private keys: u32;
  private about: u32;
  private isWrite: bool;
  requests: Requests;

  constructor(policy: Policy) {
    const first = new Tenant(policy, 0, u64.MAX_VALUE);
    this.list = heap.alloc((<usize>TENANTS_MAX) << alignof<usize>());
    this.first = first;
    this.count = 0;
    this.call = 0;
    this.caller = first;
    this.keys = 0;
    this.about = 0;
    this.isWrite = false;
    this.requests = new Requests();
    this.add(first);
  }

  /** Adds a tenant, of which there must be fewer than TENANTS_MAX. Returns its number. */
  add(tenant: Tenant): u32 {
    store<usize>(this.list + ((<usize>this.count) << alignof<usize>()), changetype<usize>(tenant));
    return this.count++;
  }

  @inline
  at(number: u32): Tenant {
    return changetype<Tenant>(load<usize>(this.list + ((<usize>number) << alignof<usize>())));
  }

  /** The tenant of the slot at this address. */
  @inline
  of(slot: usize): Tenant {
    return this.count == 1 ? this.first : this.at(slotTenant(slot));
  }

  /** Begins a call with `keys` keys of a tenant; see `Yield.begin` for `about`. */
  begin(tenant: u32, keys: u32, about: u32, isWrite: bool): void {
    const caller = this.at(tenant);
    this.call++;
    this.caller = caller;
    this.keys = keys;
    this.about = about;
    this.isWrite = isWrite;
    this.requests.begin(about >> CALLER_SHIFT, (about & CONTINUES) != 0, isWrite);
    this.tell(caller);
  }

  /** Tells the policy of another tenant about the running call, which has found one of that tenant's pages. */
  @inline
  meet(tenant: Tenant): void {
    if (tenant != this.caller && tenant.call != this.call) this.tell(tenant);
  }

  /** Ends the call for all policies that were told of it. */
  end(): void {
    this.caller.policy.end();
    if (this.count == 1) return;
    for (let i: u32 = 0; i < this.count; i++) {
      const tenant = this.at(i);
      if (tenant != this.caller && tenant.call == this.call) tenant.policy.end();
    }
  }

  /**
   * The tenant that must give up a page for one of `tenant`: among those above their minimum, the one with the most
   * units above it; on a tie this tenant, else the one with the lowest number. If none is above its minimum, `tenant`
   * itself. NONE: no page may go.
   */
  payerFor(tenant: u32): u32 {
    if (this.count == 1) return 0;
    let payer: u32 = NONE;
    let most: u64 = 0;
    const own = this.at(tenant);
    if (own.policy.pages > 0) {
      payer = tenant;
      most = own.excessUnits;
    }
    for (let i: u32 = 0; i < this.count; i++) {
      const other = this.at(i);
      if (other.excessUnits <= most || other.policy.pages == 0) continue;
      payer = i;
      most = other.excessUnits;
    }
    return payer;
  }

  /** Notes that a page of `payer` is evicted for `tenant`. */
  @inline
  take(payer: u32, tenant: u32): void {
    if (payer == tenant) return;
    const taken = this.at(payer);
    taken.takenUnits = min(taken.takenUnits, taken.usedUnits);
  }

  /** Lowest number of a tenant above its maximum that has an evictable page, or NONE. */
  overMax(): u32 {
    for (let i: u32 = 0; i < this.count; i++) {
      const tenant = this.at(i);
      if (tenant.usedUnits > tenant.maxUnits && tenant.policy.pages > 0) return i;
    }
    return NONE;
  }

  /** Number of ghosts of all tenants. */
  get ghosts(): u32 {
    let count: u32 = 0;
    for (let i: u32 = 0; i < this.count; i++) count += this.at(i).policy.ghosts;
    return count;
  }

  /** Number of unpinned pages of all tenants. */
  get pages(): u32 {
    let count: u32 = 0;
    for (let i: u32 = 0; i < this.count; i++) count += this.at(i).policy.pages;
    return count;
  }

  /**
   * Writes the slots of all unpinned pages as u32, each tenant's next victim first; pages of several tenants are
   * interleaved in proportion. Returns the address after the last.
   */
  writeOrder(out: usize): usize {
    if (this.count == 1) return this.first.policy.writeOrder(out);
    const total = this.pages;
    const orders = heap.alloc(<usize>max<u32>(1, total) << 2);
    // For each tenant: [start of its order: u32][pages: u32][written: u32]
    const cursors = heap.alloc(<usize>this.count * 12);
    let end = orders;
    for (let i: u32 = 0; i < this.count; i++) {
      const cursor = cursors + <usize>i * 12;
      store<u32>(cursor, <u32>((end - orders) >> 2));
      store<u32>(cursor, this.at(i).policy.pages, 4);
      store<u32>(cursor, 0, 8);
      end = this.at(i).policy.writeOrder(end);
    }
    for (let i: u32 = 0; i < total; i++) {
      const cursor = cursors + <usize>this.leastWritten(cursors) * 12;
      const written = load<u32>(cursor, 8);
      store<u32>(out, load<u32>(orders + ((<usize>load<u32>(cursor) + written) << 2)));
      store<u32>(cursor, written + 1, 8);
      out += 4;
    }
    heap.free(cursors);
    heap.free(orders);
    return out;
  }

  dispose(): void {
    for (let i: u32 = 0; i < this.count; i++) this.at(i).dispose();
    heap.free(this.list);
    this.requests.dispose();
    heap.free(changetype<usize>(this));
  }

  /** The first tenant with the smallest share of its pages written; at least one must have unwritten pages. */
  private leastWritten(cursors: usize): u32 {
    let least: u32 = NONE;
    let leastPages: u64 = 1;
    let leastWritten: u64 = 1;
    for (let i: u32 = 0; i < this.count; i++) {
      const pages = <u64>load<u32>(cursors + <usize>i * 12, 4);
      const written = <u64>load<u32>(cursors + <usize>i * 12, 8);
      if (written == pages || (least != NONE && written * leastPages >= leastWritten * pages)) continue;
      least = i;
      leastPages = pages;
      leastWritten = written;
    }
    return least;
  }

  private tell(tenant: Tenant): void {
    tenant.call = this.call;
    tenant.policy.begin(this.keys, this.about, this.isWrite, this.requests.current);
  }
}
