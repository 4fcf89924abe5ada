import type { Mistake } from './mistakes.js';
import {
  type Call,
  type Change,
  type Drop,
  historyOf,
  isVoidBy,
  type KeyState,
  type Listed,
  NODES,
  type Node,
  owners,
  type Page,
  type Session,
  type State,
} from './state.js';

type Told = Extract<Change, { kind: 'key' }>;

/** What nodes tell each other, as atomic steps on one state. It may have one planted mistake. */
export class Exchange {
  readonly #mistake: Mistake | undefined;

  constructor(mistake?: Mistake) {
    this.#mistake = mistake;
  }

  /** What a node that has been an owner has noted, and what both know of clears. */
  takeNotes(state: State, holder: number, owner: number): void {
    const [from, to] = [state.nodes[holder]!, state.nodes[owner]!];
    const session = state.sessions[holder]![owner]!;
    const due = state.keys.filter((key) => session.states[key] === 'broken');
    if (due.length === 0) return;
    for (const key of due) session.states[key] = 'noted';
    if (this.#mistake !== 'cleared not carried over') {
      for (const origin of NODES) {
        const moment = Math.max(from.cleared[origin]!, to.cleared[origin]!);
        this.clearedUpTo(state, holder, origin, moment);
        this.clearedUpTo(state, owner, origin, moment);
      }
      for (const call of state.calls) if (call.kind === 'clear') this.#passOn(call, holder, owner, true);
    }
    if (holder === owner || this.#mistake === 'list leaves notes out') return;
    for (const key of due) {
      if (!this.owned(to, owner).includes(key)) continue;
      const note = from.notes[key];
      if (note) this.#note(state, owner, { ...note, key });
      if (this.#mistake !== 'forgotten not carried over') this.#takeForgotten(state, owner, key, from.forgotten[key]!);
      for (const call of state.calls) if (call.key === key) this.#passOn(call, holder, owner, false);
    }
  }

  /** The keys that a holder may list: the owner knows what all members have noted of them. */
  listable(state: State, holder: number, owner: number): number[] {
    const { states } = state.sessions[holder]![owner]!;
    return state.keys.filter((key) => states[key] === 'noted' && this.isComplete(state, owner, key));
  }

  /** What a holder has of keys that the owner has not compared. */
  list(state: State, holder: number, owner: number): void {
    const [from, to] = [state.nodes[holder]!, state.nodes[owner]!];
    const session = state.sessions[holder]![owner]!;
    const listed = this.listable(state, holder, owner);
    for (const key of listed) {
      session.states[key] = 'live';
      to.lists[key]![holder] = null;
      const page = from.pages[key];
      if (!page || !this.owned(to, owner).includes(key)) continue;
      if (this.#mistake === 'list leaves a page out' && page.state === 'kept') continue;
      if (page.state === 'copying' || this.#isVoid(state, owner, holder, { key, ...page }))
        this.remove(state, holder, key, owner);
      else this.#accept(state, holder, owner, key, page);
    }
    const clock = Math.max(from.clock, to.clock);
    from.clock = clock;
    to.clock = clock;
    for (const key of listed) {
      if (this.owned(to, owner).includes(key))
        from.heard[key]![historyOf(owner, to.start)] = this.heardBy(state, holder, owner, key);
    }
  }

  /**
   * What another owner has forgotten may concern pages that have been compared already: all of them are listed again.
   */
  #takeForgotten(state: State, owner: number, key: number, others: readonly number[]): void {
    const own = state.nodes[owner]!.forgotten[key]!;
    if (others.every((moment, history) => moment <= own[history]!)) return;
    others.forEach((moment, history) => {
      own[history] = Math.max(own[history]!, moment);
      this.see(state, owner, moment);
    });
    if (this.#mistake === 'forgotten without a new list') return;
    for (const holder of NODES) {
      const session = state.sessions[holder]![owner]!;
      if (session.states[key] === 'live') this.#beginAgain(session, key, 'noted');
    }
  }

  /** What was to be told about the key is part of the next list. */
  #beginAgain(session: Session, key: number, state: KeyState): void {
    session.states[key] = state;
    const isListed = (change: Change): boolean => change.kind === 'key' && change.key === key;
    session.changes = session.changes.filter((change) => !isListed(change) || (state === 'noted' && isDelete(change)));
    session.drops = session.drops.filter((drop) => drop.key !== key);
    if (session.sent === null || !isListed(session.sent.change)) return;
    if (state === 'noted' && isDelete(session.sent.change))
      session.changes = joined(session.changes, session.sent.change);
    session.sent = null;
  }

  /** An owner has got a further key. */
  gain(state: State, owner: number, key: number): void {
    for (const holder of NODES) this.#beginAgain(state.sessions[holder]![owner]!, key, 'broken');
  }

  #passOn(call: Call, holder: number, owner: number, isMutual: boolean): void {
    if (call.knowers & (1 << holder)) call.knowers |= 1 << owner;
    if (isMutual && call.knowers & (1 << owner)) call.knowers |= 1 << holder;
  }

  /**
   * The rule: whether a page, or a change, is void for an owner. It is if the owner has noted so, or its origin has
   * cleared since, or if somebody has noted what is forgotten now, not before the page was set, and its holder has not
   * heard everything up to then.
   */
  #isVoid(
    { nodes }: State,
    owner: number,
    holder: number,
    { key, version, origin, isNamed }: Pick<Page, 'version' | 'origin' | 'isNamed'> & { key: number },
  ): boolean {
    const { notes, cleared, forgotten } = nodes[owner]!;
    // What the holder has noted as an owner itself, of the key or once, counts as well.
    if (isVoidBy(nodes[holder]!.notes[key], { version, isNamed })) return true;
    if (isVoidBy(notes[key], { version, isNamed }) || version <= cleared[origin]!) return true;
    const heard = nodes[holder]!.heard[key]!;
    return forgotten[key]!.some((moment, history) => version <= moment && heard[history]! < moment);
  }

  #accept(state: State, holder: number, owner: number, key: number, { version, isNamed }: Listed): void {
    this.#note(state, owner, { key, below: this.#belowOf({ version, isNamed }), namedBelow: version });
    state.nodes[owner]!.lists[key]![holder] = { version, isNamed };
    const page = state.nodes[holder]!.pages[key];
    if (page?.version === version && (page.state === 'new' || page.state === 'copying')) page.state = 'good';
    for (const call of state.calls) {
      if (call.kind === 'set' && call.key === key && call.version === version && page?.version === version)
        this.#taken(state, call, owner);
    }
  }

  #taken(state: State, call: Call, owner: number): void {
    const knew = state.calls.some(({ version, knowers }) => version === call.after && knowers & (1 << owner));
    call.isOvertaken ||= knew && call.version < call.after;
    call.knowers |= 1 << owner;
    call.takers |= 1 << owner;
  }

  /** A computed page says nothing of other computed pages. */
  #belowOf({ version, isNamed }: Listed): number {
    return isNamed || this.#mistake === 'computed pages replace each other' ? version : 0;
  }

  /** Further pages of the key are void from now on; their holders are told. */
  #note(state: State, owner: number, { key, below, namedBelow }: Drop): void {
    const node = state.nodes[owner]!;
    const before = node.notes[key] ?? { below: 0, namedBelow: 0, at: 0 };
    if (below <= before.below && namedBelow <= before.namedBelow) return;
    this.see(state, owner, namedBelow);
    const note = {
      below: Math.max(below, before.below),
      namedBelow: Math.max(namedBelow, before.namedBelow),
      at: this.next(state, owner),
    };
    if (this.#mistake === 'computed pages leave named ones') note.namedBelow = note.below;
    node.notes[key] = note;
    const drop = { key, below: note.below, namedBelow: note.namedBelow };
    if (node.pages[key]?.state !== 'new') this.#dropVoid(state, owner, drop);
    for (const holder of NODES) {
      const listed = node.lists[key]![holder]!;
      if (!listed || !isVoidBy(note, listed)) continue;
      node.lists[key]![holder] = null;
      if (state.sessions[holder]![owner]!.states[key] === 'live' && this.#mistake !== 'drops told to nobody') {
        const session = state.sessions[holder]![owner]!;
        session.drops = [...session.drops.filter((other) => other.key !== key), drop];
      }
    }
  }

  /** Sends the first change, as it is with its key now. */
  send(state: State, holder: number, owner: number): void {
    const session = state.sessions[holder]![owner]!;
    const change = session.changes.shift()!;
    const page = change.kind === 'key' ? state.nodes[holder]!.pages[change.key]! : null;
    session.sent = { change, page: page && { ...page } };
  }

  /** The change that is on its way arrives, or the first one is sent and arrives at once. */
  change(state: State, holder: number, owner: number): void {
    const session = state.sessions[holder]![owner]!;
    if (session.sent === null) this.send(state, holder, owner);
    const { change, page } = session.sent!;
    session.sent = null;
    if (change.kind === 'clear') {
      this.clearedUpTo(state, owner, change.origin, change.version);
      for (const call of state.calls)
        if (call.kind === 'clear' && call.version === change.version) call.knowers |= 1 << owner;
      return;
    }
    if (change.below > 0) this.#applyDelete(state, holder, owner, change);
    this.#applyPage(state, holder, owner, change.key, page);
  }

  /** The change that is on its way arrives, and its answer is lost: it is told again. */
  repeat(state: State, holder: number, owner: number): void {
    const { change } = state.sessions[holder]![owner]!.sent!;
    this.change(state, holder, owner);
    this.tell(state, holder, owner, change);
  }

  /** The change that is on its way does not arrive: it is told again. */
  lose(state: State, holder: number, owner: number): void {
    const session = state.sessions[holder]![owner]!;
    const { change } = session.sent!;
    session.sent = null;
    if (this.#mistake !== 'what is lost is not told again') this.tell(state, holder, owner, change);
  }

  #applyDelete(state: State, holder: number, owner: number, { key, below }: Told): void {
    const call = this.#openCall(state, holder, key, below);
    if (!this.#isVoid(state, owner, holder, { key, version: below, origin: holder, isNamed: true })) {
      this.#note(state, owner, { key, below, namedBelow: below });
      for (const one of state.calls) if (one.key === key && one.version === below) this.#taken(state, one, owner);
    } else if (call) {
      this.#takeLater(state, holder, owner, call);
      this.tellOwners(state, holder, { kind: 'key', key, below: call.version });
    }
  }

  #applyPage(state: State, holder: number, owner: number, key: number, page: Page | null): void {
    const node = state.nodes[owner]!;
    const list = node.lists[key]!;
    if (!page) {
      list[holder] = null;
      return;
    }
    const { version } = page;
    if (page.state === 'copying') {
      const hasOriginal = NODES.some((other) => other !== holder && list[other]?.version === version);
      const isGood = hasOriginal || this.#mistake === 'copies count without an original';
      const isOld =
        isVoidBy(node.notes[key], page) ||
        isVoidBy(state.nodes[holder]!.notes[key], page) ||
        version <= node.cleared[page.origin]!;
      if (!isGood || isOld) this.#dropVersion(state, holder, key, version);
      else this.#accept(state, holder, owner, key, page);
      return;
    }
    if (!this.#isVoid(state, owner, holder, { key, ...page })) {
      this.#accept(state, holder, owner, key, page);
      return;
    }
    const call = this.#openCall(state, holder, key, version);
    const own = state.nodes[holder]!.pages[key];
    if (!call || own?.version !== version) {
      this.#dropVersion(state, holder, key, version);
      return;
    }
    this.#takeLater(state, holder, owner, call);
    Object.assign(own, { version: call.version, state: 'new' });
    this.tellOwners(state, holder, { kind: 'key', key, below: 0 });
  }

  #dropVersion(state: State, holder: number, key: number, version: number): void {
    if (state.nodes[holder]!.pages[key]?.version === version) this.remove(state, holder, key);
  }

  #openCall({ calls }: State, node: number, key: number, version: number): Call | undefined {
    return calls.find((one) => !one.done && one.node === node && one.key === key && one.version === version);
  }

  /** A call that has not returned, and is overtaken by what the owner knows, takes a later version. */
  #takeLater(state: State, holder: number, owner: number, call: Call): void {
    const { notes, forgotten, clock } = state.nodes[owner]!;
    this.see(state, holder, Math.max(notes[call.key]?.namedBelow ?? 0, ...forgotten[call.key]!, clock));
    call.version = this.next(state, holder);
    call.knowers = 0;
    call.takers = 0;
    call.isOvertaken = false;
  }

  drop(state: State, holder: number, owner: number): void {
    const drop = state.sessions[holder]![owner]!.drops.shift()!;
    this.see(state, holder, drop.namedBelow);
    this.#dropVoid(state, holder, drop);
  }

  /** Up to when a holder has heard an owner about a key; -1: it has not yet heard what it was told last. */
  heardBy(state: State, holder: number, owner: number, key: number): number {
    const { changes, sent, drops } = state.sessions[holder]![owner]!;
    const { clock } = state.nodes[owner]!;
    if (drops.some((drop) => drop.key === key) && this.#mistake !== 'heard before drops') return -1;
    if (this.#mistake === 'heard before changes') return clock;
    const isTold = (change: Change): boolean => change.kind === 'key' && change.key === key;
    const told = [...changes, ...(sent ? [sent.change] : [])].filter(isTold);
    const pages = [
      changes.some(isTold) && state.nodes[holder]!.pages[key],
      sent !== null && isTold(sent.change) && sent.page,
    ];
    const waiting = [
      ...told.flatMap((change) => (change.kind === 'key' && change.below > 0 ? [change.below] : [])),
      ...pages.flatMap((page) => (page && page.state !== 'copying' ? [page.version] : [])),
    ];
    return Math.min(clock, ...waiting.map((version) => version - 1));
  }

  /** The keys about which an owner may tell a holder that it has heard everything. */
  audible(state: State, holder: number, owner: number): number[] {
    const { states } = state.sessions[holder]![owner]!;
    return this.owned(state.nodes[owner]!, owner).filter(
      (key) => states[key] === 'live' && this.isComplete(state, owner, key),
    );
  }

  hear(state: State, holder: number, owner: number): void {
    const from = state.nodes[owner]!;
    for (const key of this.audible(state, holder, owner)) {
      const moment = this.heardBy(state, holder, owner, key);
      state.nodes[holder]!.heard[key]![historyOf(owner, from.start)] = moment;
    }
    this.see(state, holder, from.clock);
  }

  break(state: State, holder: number, owner: number): void {
    state.sessions[holder]![owner] = { states: state.keys.map(() => 'broken'), changes: [], sent: null, drops: [] };
  }

  owned({ pages, view }: Node, which: number): number[] {
    return [...pages.keys()].filter((key) => owners(key, view).includes(which));
  }

  /** Whether an owner knows what all members have noted of a key. */
  isComplete(state: State, owner: number, key: number): boolean {
    if (this.#mistake === 'complete without a member') return true;
    return NODES.every(
      (holder) =>
        !(state.nodes[owner]!.view & (1 << holder)) || state.sessions[holder]![owner]!.states[key] !== 'broken',
    );
  }

  tellOwners(state: State, holder: number, change: Told): void {
    for (const owner of this.ownersFor(state, holder, change.key)) this.tell(state, holder, owner, change);
  }

  /**
   * The owners of a key by the members that its holder knows, and those who count themselves as such and are in touch
   * with it.
   */
  ownersFor(state: State, holder: number, key: number): number[] {
    const known = owners(key, state.nodes[holder]!.view);
    const inTouch = (owner: number) =>
      state.sessions[holder]![owner]!.states[key] !== 'broken' && this.owned(state.nodes[owner]!, owner).includes(key);
    return NODES.filter((owner) => known.includes(owner) || inTouch(owner));
  }

  tell(state: State, holder: number, owner: number, change: Change): void {
    const session = state.sessions[holder]![owner]!;
    if (!isHeard(session, change)) return;
    session.changes = joined(session.changes, change);
    if (holder === owner) this.tellItself(state, owner);
  }

  /**
   * A node has no link to itself that could fail: whatever it states is compared at once when it knows what all members
   * have noted.
   */
  tellItself(state: State, node: number): void {
    const session = state.sessions[node]![node]!;
    for (;;) {
      const next = session.changes.find((change) => this.isTellable(state, node, node, change));
      if (!next) return;
      session.changes = [next, ...session.changes.filter((change) => change !== next)];
      this.change(state, node, node);
    }
  }

  /**
   * Whether an owner takes a change now: it has the holder's list, and knows what all members have noted of the key.
   */
  isTellable(state: State, holder: number, owner: number, change: Change): boolean {
    if (change.kind === 'clear') return true;
    const isLive = state.sessions[holder]![owner]!.states[change.key] === 'live';
    return isLive && this.isComplete(state, owner, change.key);
  }

  remove(state: State, holder: number, key: number, except = -1): void {
    const page = state.nodes[holder]!.pages[key];
    if (!page) return;
    state.nodes[holder]!.pages[key] = null;
    for (const owner of this.ownersFor(state, holder, key)) {
      if (owner !== except) this.tell(state, holder, owner, { kind: 'key', key, below: 0 });
    }
  }

  #dropVoid(state: State, holder: number, drop: Drop): void {
    const page = state.nodes[holder]!.pages[drop.key];
    if (page && isVoidBy(drop, page)) this.remove(state, holder, drop.key);
  }

  clearedUpTo(state: State, which: number, origin: number, moment: number): void {
    const node = state.nodes[which]!;
    const below = Math.max(node.cleared[origin]!, moment);
    if (this.#mistake !== 'cleared not remembered') node.cleared[origin] = below;
    this.see(state, which, moment);
    for (const key of state.keys) {
      const page = node.pages[key];
      if (page?.origin === origin && page.version <= below) this.remove(state, which, key);
    }
  }

  next(state: State, which: number): number {
    const node = state.nodes[which]!;
    node.clock = 4 * Math.floor(node.clock / 4) + 4 + which;
    // A start whose clock has gone back does not give out a version once more.
    while (state.calls.some(({ version }) => version === node.clock)) node.clock += 4;
    return node.clock;
  }

  see(state: State, which: number, moment: number): void {
    const node = state.nodes[which]!;
    node.clock = Math.max(node.clock, moment);
  }
}

/** Adds a change, which takes the place of an earlier one about the same key. */
function joined(changes: readonly Change[], change: Change): Change[] {
  if (change.kind !== 'key') return [...changes, change];
  const isSame = (other: Change): boolean => other.kind === 'key' && other.key === change.key;
  const before = changes.find(isSame) as Told | undefined;
  const below = Math.max(change.below, before?.below ?? 0);
  return [...changes.filter((other) => !isSame(other)), { ...change, below }];
}

/**
 * Whether an owner is told of a change: of pages by the list, until it has that; of deletes and clears as soon as both
 * are in touch.
 */
function isHeard({ states }: Session, change: Change): boolean {
  if (change.kind === 'clear') return states.some((one) => one !== 'broken');
  return change.below > 0 ? states[change.key] !== 'broken' : states[change.key] === 'live';
}

function isDelete(change: Change): boolean {
  return change.kind === 'key' && change.below > 0;
}
