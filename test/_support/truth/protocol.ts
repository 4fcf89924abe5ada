import { Calls, type Read } from './calls.js';
import { Exchange } from './exchange.js';
import type { Mistake } from './mistakes.js';
import { copyOf, freshNode, historyOf, link, NODES, type Node, type Session, type State } from './state.js';

/** A step by its name, and what it does to a state. */
export type Step = [name: string, step: (state: State) => void];

/** Everything that can happen in a cluster of three nodes: calls, faults, changes of members, messages. */
export class Protocol {
  readonly #exchange: Exchange;
  readonly #calls: Calls;
  readonly #mistake: Mistake | undefined;

  /** With a mistake, it is one that must break a promise. */
  constructor(mistake?: Mistake) {
    this.#exchange = new Exchange(mistake);
    this.#calls = new Calls(this.#exchange, mistake);
    this.#mistake = mistake;
  }

  /** The versions of a key that a read on a node may bring. */
  readable(state: State, reader: number, key: number): Read[] {
    return this.#calls.readable(state, reader, key);
  }

  /** The state after a step, and what follows from it at once. */
  after(state: State, step: Step[1]): State {
    const next = copyOf(state);
    step(next);
    this.#calls.conclude(next);
    return next;
  }

  /** What a state comes to when all links work and everybody is told everything. */
  settled(state: State): State {
    const next = copyOf(state);
    next.cut = 0;
    for (;;) {
      const [member] = this.#members(next);
      if (member) member[1](next);
      else if (!this.#tellAll(next)) return next;
      this.#calls.conclude(next);
    }
  }

  #tellAll(state: State): boolean {
    let isTold = false;
    for (const holder of NODES) {
      for (const owner of NODES) {
        if (holder === owner) continue;
        const session = state.sessions[holder]![owner]!;
        isTold ||= session.states.some((one) => one !== 'live') || isUnderWay(session);
        this.#exchange.takeNotes(state, holder, owner);
        if (this.#exchange.listable(state, holder, owner).length > 0) this.#exchange.list(state, holder, owner);
        while (this.#isTellable(state, holder, owner)) this.#exchange.change(state, holder, owner);
        while (session.drops.length > 0) this.#exchange.drop(state, holder, owner);
      }
    }
    return isTold;
  }

  /** Every step that can be taken from a state. */
  *choices(state: State): Generator<Step> {
    yield* this.#programs(state);
    yield* this.#faults(state);
    yield* this.#members(state);
    yield* this.#messages(state);
  }

  *#programs(state: State): Generator<Step> {
    const { nodes, budget } = state;
    for (const node of NODES) {
      if (!nodes[node]!.joined) continue;
      for (const key of state.keys) {
        const page = nodes[node]!.pages[key];
        if (budget.sets > 0) yield [`set ${node} ${key}`, (next) => this.#calls.set(next, node, key, true)];
        if (budget.computed > 0) yield [`compute ${node} ${key}`, (next) => this.#calls.set(next, node, key, false)];
        if (budget.deletes > 0) yield [`delete ${node} ${key}`, (next) => this.#calls.delete(next, node, key)];
        if (page && budget.evictions > 0) {
          yield [`evict ${node} ${key}`, (next) => this.#calls.evict(next, node, key)];
        }
        if (!page && budget.copies > 0) yield* this.#copies(node, key);
      }
      if (budget.clears > 0) yield [`clear ${node}`, (next) => this.#calls.clear(next, node)];
    }
  }

  *#copies(node: number, key: number): Generator<Step> {
    for (const holder of NODES) {
      if (holder !== node) yield [`copy ${node} ${key} ${holder}`, (next) => this.#calls.copy(next, node, key, holder)];
    }
  }

  *#faults(state: State): Generator<Step> {
    const { cut, nodes, sessions, budget } = state;
    for (const one of NODES) {
      for (const other of NODES) {
        const bit = link(one, other);
        if (one < other && budget.cuts > 0 && !(cut & bit))
          yield [`cut ${one} ${other}`, (next) => this.#cut(next, bit)];
        if (one < other && cut & bit) yield [`heal ${one} ${other}`, (next) => (next.cut &= ~bit)];
        if (cut & bit && sessions[one]![other]!.states.some((key) => key !== 'broken'))
          yield [`break ${one} ${other}`, (next) => this.#exchange.break(next, one, other)];
      }
      if (budget.restarts > 0) {
        yield [`restart ${one}`, (next) => this.#restart(next, one, false)];
        if (nodes[one]!.pages.some((page) => page))
          yield [`restart-kept ${one}`, (next) => this.#restart(next, one, true)];
      }
      for (const key of state.keys) {
        if (budget.lapses > 0 && this.#mayForget(nodes[one]!, key))
          yield [`forget ${one} ${key}`, (next) => this.#forget(next, one, key)];
      }
    }
  }

  #cut(state: State, bit: number): void {
    state.budget.cuts--;
    state.cut |= bit;
    this.#disturb(state);
  }

  #disturb({ calls }: State): void {
    for (const call of calls) {
      call.undisturbed = false;
      call.isLasting = false;
    }
  }

  #restart(state: State, which: number, isKept: boolean): void {
    state.budget.restarts--;
    const before = state.nodes[which]!;
    const node = freshNode(state.keys, before.start + 1);
    node.view = 1 << which;
    if (isKept) {
      node.pages = before.pages.map((page) => page && { ...page, state: 'kept' as const });
      node.heard = before.heard;
      node.clock = Math.max(...before.heard.flat(), ...node.pages.map((page) => page?.version ?? 0));
      for (const moments of node.heard) moments[historyOf(which, before.start)] = before.clock;
    }
    state.nodes[which] = node;
    for (const other of NODES) {
      this.#exchange.break(state, which, other);
      this.#exchange.break(state, other, which);
      for (const key of state.keys) state.nodes[other]!.lists[key]![which] = null;
    }
    state.calls = state.calls.filter((call) => call.done || call.node !== which);
    this.#disturb(state);
    for (const call of state.calls) {
      call.knowers &= ~(1 << which);
      call.takers &= ~(1 << which);
    }
  }

  #mayForget(node: Node, key: number): boolean {
    const note = node.notes[key];
    return note != null && !node.lists[key]!.some((listed) => listed && listed.version >= note.below);
  }

  #forget(state: State, owner: number, key: number): void {
    state.budget.lapses--;
    const node = state.nodes[owner]!;
    const history = historyOf(owner, node.start);
    const moments = node.forgotten[key]!;
    if (this.#mistake !== 'forgotten not noted') moments[history] = Math.max(moments[history]!, node.notes[key]!.at);
    node.notes[key] = null;
  }

  *#members({ cut, nodes }: State): Generator<Step> {
    for (const one of NODES) {
      for (const other of NODES) {
        if (one === other) continue;
        const isCut = (cut & link(one, other)) !== 0;
        const knows = (nodes[one]!.view & (1 << other)) !== 0;
        if (knows && nodes[one]!.joined && (isCut || !nodes[other]!.joined)) {
          yield [`notice ${one} ${other}`, (next) => this.#notice(next, one, other)];
        }
        const isKnown = (nodes[other]!.view & (1 << one)) !== 0;
        if (one < other && !isCut && nodes[one]!.joined && nodes[other]!.joined && !(knows && isKnown)) {
          yield [`meet ${one} ${other}`, (next) => this.#meet(next, one, other)];
        }
      }
      const others = NODES.filter((other) => other !== one && !(cut & link(one, other)));
      if (!nodes[one]!.joined && others.length > 0) yield [`join ${one}`, (next) => this.#join(next, one, others)];
    }
  }

  #join(state: State, node: number, others: readonly number[]): void {
    state.nodes[node]!.joined = true;
    for (const other of others) {
      state.nodes[other]!.joined = true;
      this.#meet(state, node, other);
    }
  }

  #meet(state: State, one: number, other: number): void {
    this.#view(state, one, state.nodes[one]!.view | (1 << one) | (1 << other));
    this.#view(state, other, state.nodes[other]!.view | (1 << one) | (1 << other));
  }

  #notice(state: State, node: number, lost: number): void {
    this.#exchange.break(state, node, lost);
    this.#exchange.break(state, lost, node);
    for (const key of state.keys) state.nodes[node]!.lists[key]![lost] = null;
    this.#view(state, node, state.nodes[node]!.view & ~(1 << lost));
  }

  /** Takes another list of members. A node that gets a key begins anew with it: its holders have to list it. */
  #view(state: State, which: number, view: number): void {
    const node = state.nodes[which]!;
    const before = this.#exchange.owned(node, which);
    node.view = view;
    const gained = this.#exchange.owned(node, which).filter((key) => !before.includes(key));
    if (this.#mistake !== 'new owner keeps its sessions')
      for (const key of gained) this.#exchange.gain(state, which, key);
    this.#exchange.takeNotes(state, which, which);
  }

  /** Whether the next change of a holder can arrive. */
  #isTellable(state: State, holder: number, owner: number): boolean {
    const { sent, changes } = state.sessions[holder]![owner]!;
    const next = sent?.change ?? changes[0];
    return next !== undefined && this.#exchange.isTellable(state, holder, owner, next);
  }

  *#messages(state: State): Generator<Step> {
    const { cut, nodes, sessions } = state;
    for (const holder of NODES) {
      for (const owner of NODES) {
        if (holder === owner || cut & link(holder, owner)) continue;
        const [one, other] = [nodes[holder]!, nodes[owner]!];
        const session = sessions[holder]![owner]!;
        const areMembers = one.joined && other.joined && one.view & (1 << owner) && other.view & (1 << holder);
        if (areMembers && session.states.includes('broken'))
          yield [`notes ${holder} ${owner}`, (next) => this.#exchange.takeNotes(next, holder, owner)];
        if (this.#exchange.listable(state, holder, owner).length > 0)
          yield [`list ${holder} ${owner}`, (next) => this.#exchange.list(next, holder, owner)];
        if (session.changes.length > 0 && !session.sent)
          yield [`send ${holder} ${owner}`, (next) => this.#exchange.send(next, holder, owner)];
        if (session.sent) yield [`lose ${holder} ${owner}`, (next) => this.#exchange.lose(next, holder, owner)];
        if (this.#isTellable(state, holder, owner)) {
          if (session.sent) yield [`repeat ${holder} ${owner}`, (next) => this.#exchange.repeat(next, holder, owner)];
          yield [`change ${holder} ${owner}`, (next) => this.#exchange.change(next, holder, owner)];
        }
        if (session.drops.length > 0)
          yield [`drop ${holder} ${owner}`, (next) => this.#exchange.drop(next, holder, owner)];
        const history = historyOf(owner, other.start);
        const hasMore = (key: number): boolean =>
          this.#exchange.heardBy(state, holder, owner, key) > one.heard[key]![history]!;
        if (this.#exchange.audible(state, holder, owner).some(hasMore))
          yield [`hear ${holder} ${owner}`, (next) => this.#exchange.hear(next, holder, owner)];
      }
    }
  }
}

function isUnderWay({ changes, sent, drops }: Session): boolean {
  return changes.length + drops.length > 0 || sent !== null;
}
