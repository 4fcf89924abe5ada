import { NONE, Records } from '../../records';
import { GHOST, LIVE, NORMAL, slotPriority, slotStatus, slotTenant } from '../../slot';
import { BEGINS, CALLER_SHIFT, CONTINUES, ENDS_ELSEWHERE, HINT_MASK } from '../about';
import { CallChain } from './call-chain';
import { callerFirst, Callers, callerSlot, callerSlotCall, continues, noteCall, setCallerFirst, setCallerSlot, wasWrite } from './callers';
import { CLASS_BITS, slotCall } from './yield-slot';

/** Mask of call numbers, which wrap. */
const CALL_MASK: u32 = 0xffffffff >> CLASS_BITS;

/**
 * The calls of one tenant, and which requests they are parts of: as their callers say, or as it looks (`callers.ts`).
 * Knows the page that came last in the running call's request.
 */
@unmanaged
export class Calls {
  private slots: Records;
  /** Number of the tenant: slots of others, which count calls of their own, are none of its pages. */
  private tenant: u32;
  private callers: Callers;
  private chain: CallChain;
  /** The running call, or the last one: number, hint and caller. */
  current: u32;
  hint: u32;
  private caller: usize;
  private endsElsewhere: bool;
  /** Whether the running call was stated to continue a request, and whether it does, stated or not. */
  isTold: bool;
  isContinued: bool;
  /** Whether the running call continues a request only as it looks, as a further slice of it. */
  isSlice: bool;
  /** Whether no page was found yet in a call that may prove to begin a request: see {@link isRepeat}. */
  private mayRepeat: bool;
  /** The page that came last in the request, or NONE, and the call that had it. */
  previous: u32;
  private previousCall: u32;
  /** The page that was last returned after an unpin, or NONE, and the call that had it. */
  private unpinned: u32;
  private unpinnedCall: u32;

  constructor(slots: Records, tenant: u32) {
    this.slots = slots;
    this.tenant = tenant;
    this.callers = new Callers();
    this.chain = new CallChain();
    this.current = 0;
    this.hint = 0;
    this.caller = this.callers.at(0);
    this.endsElsewhere = false;
    this.isTold = false;
    this.isContinued = false;
    this.isSlice = false;
    this.mayRepeat = false;
    this.previous = NONE;
    this.previousCall = 0;
    this.unpinned = NONE;
    this.unpinnedCall = 0;
  }

  /** Begins a call; see {@link Yield.begin}. If it is not continued, {@link beginRequest} must follow. */
  begin(keys: u32, about: u32, isWrite: bool, request: u32): void {
    this.current = (this.current + 1) & CALL_MASK;
    this.hint = about & HINT_MASK;
    const caller = this.callers.at(about >> CALLER_SHIFT);
    this.caller = caller;
    this.endsElsewhere = (about & ENDS_ELSEWHERE) != 0;
    this.previous = callerSlot(caller);
    this.previousCall = callerSlotCall(caller);
    if (!this.isPrevious(LIVE) && !this.isPrevious(GHOST)) this.previous = NONE;
    this.isTold = (about & CONTINUES) != 0;
    this.isContinued = this.isTold || ((about & BEGINS) == 0 && continues(caller, isWrite));
    this.mayRepeat = this.isContinued && !this.isTold;
    this.isSlice = this.mayRepeat && wasWrite(caller) == isWrite;
    this.chain.note(this.current, this.isContinued ? this.previousCall : this.current);
    this.chain.setRequest(this.current, request);
    noteCall(caller, keys, isWrite);
  }

  end(): void {
    const isLast = !this.endsElsewhere && (this.isPrevious(LIVE) || this.isPrevious(GHOST));
    setCallerSlot(this.caller, isLast ? this.previous : NONE, this.previousCall);
  }

  /**
   * Begins a request. Returns the page that was the last one of the caller's previous request, which is known only now;
   * NONE if it is gone.
   */
  beginRequest(): u32 {
    setCallerFirst(this.caller, this.current);
    this.chain.note(this.current, this.current);
    const last = this.isPrevious(LIVE) ? this.previous : NONE;
    this.previous = NONE;
    return last;
  }

  /**
   * Whether the call, or what it was said to go on with, has had the page already: a part of a request may be tried
   * again.
   */
  @inline
  hasHad(at: usize): bool {
    const call = slotCall(at);
    return call == this.current || (this.isTold && this.chain.continues(this.current, call));
  }

  /**
   * Whether the call begins with a page of the request that it seemed to continue: it begins a new one then, as no
   * request has a page twice.
   */
  isRepeat(at: usize): bool {
    if (!this.mayRepeat) return false;
    this.mayRepeat = false;
    const age = (this.current - slotCall(at)) & CALL_MASK;
    return age <= ((this.current - callerFirst(this.caller)) & CALL_MASK);
  }

  /** Notes that a page has been placed: the call cannot prove to begin a request any more. */
  @inline
  placed(): void {
    this.mayRepeat = false;
  }

  @inline
  follow(slot: u32): void {
    this.previous = slot;
    this.previousCall = this.current;
  }

  /** Notes a page that is back after a pin. Returns the page before it in its request if that came back just before. */
  unpin(slot: u32): u32 {
    const call = slotCall(this.slots.at(slot));
    const last = this.unpinned;
    const isThere = last != NONE && this.isOf(this.slots.at(last), this.unpinnedCall);
    const before = isThere && this.chain.continues(call, this.unpinnedCall) ? last : NONE;
    this.unpinned = slot;
    this.unpinnedCall = call;
    return before;
  }

  /** The request number of the call that had this page last, as far as is remembered. */
  requestOf(at: usize): u32 {
    return this.chain.requestOf(slotCall(at));
  }

  dispose(): void {
    this.callers.dispose();
    this.chain.dispose();
    heap.free(changetype<usize>(this));
  }

  /** Whether the previous page is still the same one, in that status. Pages may be evicted while a call runs. */
  private isPrevious(status: u32): bool {
    if (this.previous == NONE) return false;
    const at = this.slots.at(this.previous);
    return slotStatus(at) == status && this.isOf(at, this.previousCall);
  }

  /** Whether a slot has a page of this order that was last placed by that call. Low and high pages are of another one. */
  @inline
  private isOf(at: usize, call: u32): bool {
    return slotCall(at) == call && slotTenant(at) == this.tenant && slotPriority(at) == NORMAL;
  }
}
