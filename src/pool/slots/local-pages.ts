import { assert, assertEqual } from '../../base/assert.js';
import type { EntryKind } from '../../types.js';
import { ExpiryHeap } from './expiry-heap.js';
import type { PageOrigin } from './page-origin.js';

/**
 * State of a page, which says what may be done with it:
 *
 * - `filling`: it has a range, but its bytes are still to be written. Nobody finds it.
 * - `earlier`: it is from before this start, and may have been overwritten or deleted while the node was away. Nobody
 *   finds it until a directory owner confirms that it is still good.
 * - `unconfirmed`: a copy of another node's page, which may have been set again while it was copied. Nobody finds it
 *   until a directory owner has accepted it.
 * - `live`: readers of this node find it.
 * - `stated`: a directory owner has accepted it, too, so that other nodes find it.
 */
export type PageState = 'filling' | 'earlier' | 'unconfirmed' | 'live' | 'stated';

/** The states by their codes in the columns; `gone`: the slot has no page. */
const STATES = ['gone', 'filling', 'earlier', 'unconfirmed', 'live', 'stated'] as const;
const GONE = 0;

/** A set of states: bits by code. */
function setOf(...states: (typeof STATES)[number][]): number {
  return states.reduce((bits, state) => bits | (1 << STATES.indexOf(state)), 0);
}

/** The states in which readers find a page. */
export const READABLE = setOf('live', 'stated');
/** The states in which a page's bytes are here. */
export const FILLED = READABLE | setOf('earlier', 'unconfirmed');
/** The states from which a page becomes `stated` when an owner accepts it. */
const STATABLE = READABLE | setOf('unconfirmed');
const STATED = setOf('stated');
export const ANY_STATE = FILLED | setOf('filling');

/** Allowed next states, by the code of the current one; a page may also stay in any state, and leave in any. */
const NEXT = [
  setOf('filling', 'earlier', 'unconfirmed', 'live'),
  setOf('unconfirmed', 'live'),
  setOf('live'),
  READABLE,
  setOf('stated'),
  setOf('live'),
].map((next, code) => next | (1 << code) | setOf('gone'));

/** The flags of a slot: bits 0 to 2 are the code of its state. */
const STATE_BITS = 7;
const NAMED = 8;

/** Whether readers find a page. */
export function isReadable({ state }: { readonly state: PageState }): boolean {
  return ((1 << STATES.indexOf(state)) & READABLE) !== 0;
}

/** Everything known of a page except its place. */
export interface PageContent extends PageOrigin {
  readonly length: number;
  readonly checksum: number;
}

/**
 * State, length, checksum and origin of each page, by slot, in columns. A slot whose page has left keeps the checksum
 * and version of that page.
 */
export class LocalPages {
  /** The slots whose pages expire. */
  readonly expiring = new ExpiryHeap();
  #lengths = new Uint32Array(1024);
  #checksums = new Uint32Array(1024);
  #versions = new Float64Array(1024);
  #flags = new Uint8Array(1024);
  /** Origins of copies; takes no memory before the first copy. */
  #setters = new Uint32Array(0);
  readonly #counts = new Uint32Array(STATES.length);

  /** Number of pages in this state. */
  countOf(state: PageState): number {
    return this.#counts[STATES.indexOf(state)] as number;
  }

  /** Whether the state of the slot is among these. */
  isIn(slot: number, states: number): boolean {
    return ((1 << this.#codeOf(slot)) & states) !== 0;
  }

  /** The state of the page in this slot, which must have one. */
  stateOf(slot: number): PageState {
    const code = this.#codeOf(slot);
    assert(code !== GONE, () => `local pages: slot ${slot} has no page`);
    return STATES[code] as PageState;
  }

  lengthOf(slot: number): number {
    return this.#lengths[slot] as number;
  }

  /** Checksum of the page that has, or last had, this slot. */
  checksumOf(slot: number): number | undefined {
    return this.#checksums[slot];
  }

  versionOf(slot: number): number {
    return this.#versions[slot] as number;
  }

  kindOf(slot: number): EntryKind {
    return ((this.#flags[slot] as number) & NAMED) !== 0 ? 'named' : 'computed';
  }

  /** The origin of the copy in this slot; 0 if the page is not a copy. */
  setByAt(slot: number): number {
    return this.#setters[slot] ?? 0;
  }

  /** Whether there may be a copy with this origin; 0: with any origin. */
  hasCopiesOf(origin: number): boolean {
    return origin === 0 ? this.#setters.length > 0 : this.#setters.includes(origin);
  }

  /** Records a page that is new, was set again, or has just received its bytes. */
  set(slot: number, { length, checksum, version, kind, expires, setBy }: PageContent, state: PageState): void {
    if (slot >= this.#flags.length) this.#grow(Math.max(slot + 1, this.#flags.length * 2));
    this.#lengths[slot] = length;
    this.#checksums[slot] = checksum;
    this.#versions[slot] = version;
    this.#move(slot, STATES.indexOf(state));
    if (kind === 'named') this.#flags[slot] = (this.#flags[slot] as number) | NAMED;
    else this.#flags[slot] = (this.#flags[slot] as number) & ~NAMED;
    this.expiring.set(slot, expires);
    this.#setOrigin(slot, setBy);
  }

  /**
   * Records that the page was set again with the same bytes. A page set by this node needs no confirmation; a changed
   * origin must be announced again.
   */
  setAgain(slot: number, origin: PageOrigin): void {
    const { version, kind, expires, setBy } = origin;
    const isSame =
      this.versionOf(slot) === version &&
      this.kindOf(slot) === kind &&
      this.expiring.expiresOf(slot) === expires &&
      this.setByAt(slot) === setBy;
    if (isSame) return;
    const state = this.stateOf(slot);
    const isLive = state === 'stated' || (state === 'unconfirmed' && setBy === 0);
    const [length, checksum] = [this.lengthOf(slot), this.checksumOf(slot) as number];
    this.set(slot, { length, checksum, version, kind, expires, setBy }, isLive ? 'live' : state);
  }

  /**
   * Records whether a directory owner has accepted the page that is here; pages that need not be announced stay
   * unchanged.
   */
  noteStated(slot: number, isTaken: boolean): void {
    if (isTaken && this.isIn(slot, STATABLE)) this.move(slot, 'stated');
    else if (this.isIn(slot, STATED)) this.move(slot, 'live');
  }

  /** Moves the page to another state. */
  move(slot: number, state: PageState): void {
    this.#move(slot, STATES.indexOf(state));
  }

  /** Records that the page has left; harmless if it already has. */
  freed(slot: number): void {
    if (this.#codeOf(slot) !== GONE) this.#move(slot, GONE);
    this.expiring.set(slot, 0);
    this.#setOrigin(slot, 0);
  }

  /** Slots of the pages in this state, in no order; walks through all slots unless there are none. */
  slotsIn(state: PageState): Uint32Array {
    const code = STATES.indexOf(state);
    const slots = new Uint32Array(this.#counts[code] as number);
    let count = 0;
    for (let slot = 0; count < slots.length; slot++) if (this.#codeOf(slot) === code) slots[count++] = slot;
    return slots;
  }

  #codeOf(slot: number): number {
    return (this.#flags[slot] ?? GONE) & STATE_BITS;
  }

  #move(slot: number, to: number): void {
    const flags = this.#flags[slot] as number;
    const from = flags & STATE_BITS;
    const isAllowed = ((NEXT[from] as number) & (1 << to)) !== 0;
    assert(isAllowed, () => `local pages: slot ${slot} goes from ${STATES[from]} to ${STATES[to]}`);
    this.#counts[from] = (this.#counts[from] as number) - Number(from !== GONE);
    this.#counts[to] = (this.#counts[to] as number) + Number(to !== GONE);
    this.#flags[slot] = (flags & ~STATE_BITS) | to;
  }

  #setOrigin(slot: number, setBy: number): void {
    if (slot >= this.#setters.length) {
      if (setBy === 0) return;
      const setters = new Uint32Array(this.#flags.length);
      setters.set(this.#setters);
      this.#setters = setters;
    }
    this.#setters[slot] = setBy;
  }

  #grow(slots: number): void {
    const [lengths, checksums] = [new Uint32Array(slots), new Uint32Array(slots)];
    const [versions, flags] = [new Float64Array(slots), new Uint8Array(slots)];
    lengths.set(this.#lengths);
    checksums.set(this.#checksums);
    versions.set(this.#versions);
    flags.set(this.#flags);
    [this.#lengths, this.#checksums, this.#versions, this.#flags] = [lengths, checksums, versions, flags];
  }

  /**
   * Throws `InvariantError` unless exactly these slots have pages whose bytes are here, every unconfirmed page is a
   * copy, and the count of each state is right.
   */
  verify(filled: ReadonlySet<number>): void {
    const counts = new Array<number>(STATES.length).fill(0);
    for (let slot = 0; slot < this.#flags.length; slot++) {
      const code = this.#codeOf(slot);
      counts[code] = (counts[code] as number) + Number(code !== GONE);
      if (!this.isIn(slot, FILLED)) continue;
      assert(filled.has(slot), () => `local pages: slot ${slot} is ${STATES[code]}, and has no page`);
      const isCopy = this.setByAt(slot) !== 0;
      assert(isCopy || STATES[code] !== 'unconfirmed', () => `local pages: slot ${slot} is unconfirmed, and no copy`);
    }
    STATES.forEach((state, code) => {
      assertEqual(`local pages: ${state}`, this.#counts[code] as number, counts[code] as number);
    });
    this.expiring.verify();
  }
}
