import type { Exchange } from './exchange.js';
import type { Mistake } from './mistakes.js';
import {
  type Call,
  type Change,
  isVoidBy,
  link,
  NODES,
  owners,
  type Page,
  type Session,
  type State,
  supersedes,
} from './state.js';

/** What a read may bring. */
export interface Read extends Readonly<Pick<Page, 'version' | 'origin' | 'isNamed'>> {
  readonly holder: number;
  /** The owner by whose word; -1: the reader holds it itself. */
  readonly owner: number;
}

/** What programs do, and what their calls bring. */
export class Calls {
  readonly #exchange: Exchange;
  readonly #mistake: Mistake | undefined;

  constructor(exchange: Exchange, mistake?: Mistake) {
    this.#exchange = exchange;
    this.#mistake = mistake;
  }

  /** The versions of a key that a read on a node may bring, and by whose word. */
  readable(state: State, reader: number, key: number): Read[] {
    const node = state.nodes[reader]!;
    if (!node.joined) return [];
    const own = node.pages[key];
    if (own?.state === 'good' && !this.#isBeingCompared(state, reader, key))
      return [{ ...contentOf(own), holder: reader, owner: -1 }];
    const found = [];
    for (const owner of owners(key, node.view)) {
      const asked = state.nodes[owner]!;
      if (state.cut & link(reader, owner) || !asked.joined || !this.#exchange.isComplete(state, owner, key)) continue;
      for (const holder of NODES) {
        const listed = asked.lists[key]![holder]!;
        const page = state.nodes[holder]!.pages[key];
        if (state.sessions[holder]![owner]!.states[key] !== 'live') continue;
        if (!listed || page?.version !== listed.version || page.state !== 'good' || state.cut & link(reader, holder))
          continue;
        if (isVoidBy(asked.notes[key], page) || page.version <= asked.cleared[page.origin]!) continue;
        found.push({ ...contentOf(page), holder, owner });
      }
    }
    return found;
  }

  /** Whether an owner that is in touch with a holder has not compared its page yet. */
  #isBeingCompared(state: State, holder: number, key: number): boolean {
    return this.#exchange
      .ownersFor(state, holder, key)
      .some((owner) => state.sessions[holder]![owner]!.states[key] === 'noted');
  }

  #begin(state: State, call: Pick<Call, 'kind' | 'node' | 'key' | 'version' | 'isNamed'>): void {
    const { nodes, sessions } = state;
    const undisturbed =
      state.cut === 0 &&
      nodes.every(({ joined, view }) => joined && view === 7) &&
      sessions.flat().every(({ states }) => states.every((one) => one === 'live'));
    const earlier = state.calls.filter(({ key, done }) => done && key >= 0 && key === call.key);
    const replaced = earlier.filter(({ isNamed }) => isNamed || call.isNamed);
    const after = Math.max(0, ...replaced.map(({ version }) => version));
    state.calls.push({
      ...call,
      done: false,
      knowers: 0,
      takers: 0,
      isMissed: false,
      undisturbed,
      after,
      isOvertaken: false,
      isLasting: undisturbed && !this.#isFailedUnderWay(state),
    });
  }

  /** Whether an owner is still to be told of a call that has failed. */
  #isFailedUnderWay({ sessions, calls }: State): boolean {
    const versions = sessions
      .flat()
      .flatMap((session) => [
        ...underWay(session).map((change) => (change.kind === 'key' ? change.below : 0)),
        session.sent?.page?.version ?? 0,
      ]);
    return versions.some((version) => version > 0 && !calls.some((call) => call.version === version));
  }

  set(state: State, node: number, key: number, isNamed: boolean): void {
    if (isNamed) state.budget.sets--;
    else state.budget.computed--;
    this.#giveUp(state, node, key);
    const version = this.#exchange.next(state, node);
    state.nodes[node]!.pages[key] = { version, origin: node, isNamed, state: 'new', isWronglyGood: false };
    this.#begin(state, { kind: 'set', node, key, version, isNamed });
    this.#exchange.tellOwners(state, node, { kind: 'key', key, below: 0 });
  }

  delete(state: State, node: number, key: number): void {
    state.budget.deletes--;
    this.#giveUp(state, node, key);
    this.#exchange.remove(state, node, key);
    const version = this.#exchange.next(state, node);
    this.#begin(state, { kind: 'delete', node, key, version, isNamed: true });
    this.#exchange.tellOwners(state, node, { kind: 'key', key, below: version });
  }

  clear(state: State, node: number): void {
    state.budget.clears--;
    const version = this.#exchange.next(state, node);
    this.#begin(state, { kind: 'clear', node, key: -1, version, isNamed: true });
    state.calls.at(-1)!.knowers = 1 << node;
    this.#exchange.clearedUpTo(state, node, node, version);
    for (const owner of NODES)
      if (owner !== node) this.#exchange.tell(state, node, owner, { kind: 'clear', origin: node, version });
  }

  copy(state: State, node: number, key: number, holder: number): void {
    state.budget.copies--;
    const read = this.readable(state, node, key).find((found) => found.holder === holder);
    if (!read) return;
    state.nodes[node]!.pages[key] = {
      ...contentOf(read),
      state: 'copying',
      isWronglyGood: false,
    };
    this.#exchange.see(state, node, read.version);
    this.#exchange.tellOwners(state, node, { kind: 'key', key, below: 0 });
  }

  evict(state: State, node: number, key: number): void {
    state.budget.evictions--;
    for (const call of state.calls) if (call.node === node && call.key === key) call.isLasting = false;
    this.#exchange.remove(state, node, key);
  }

  /** A call of the same node and key that has not returned is overtaken by its own later one: it is not counted. */
  #giveUp(state: State, node: number, key: number): void {
    for (const call of state.calls) if (!call.done && call.node === node && call.key === key) this.#fail(state, call);
  }

  /** A call that fails may have had its effect, or a part of it. */
  #fail(state: State, failed: Call): void {
    state.calls = state.calls.filter((call) => call !== failed);
    for (const call of state.calls) if (failed.key === call.key || failed.key === -1) call.isLasting = false;
  }

  /**
   * A page from before a start may be read once every owner of its key has compared it, and none does that before it
   * counts itself as an owner.
   */
  #openGate(state: State, holder: number, key: number): void {
    const { pages, joined } = state.nodes[holder]!;
    const page = pages[key];
    if (page?.state !== 'kept') return;
    const asked = this.#exchange.ownersFor(state, holder, key);
    const haveCompared = asked.filter((owner) => this.#hasCompared(state, holder, owner, key)).length;
    const needed = this.#mistake === 'kept pages ask one owner' ? 1 : asked.length;
    if (joined && (haveCompared >= needed || this.#mistake === 'kept pages are read at once')) {
      page.state = 'good';
      page.isWronglyGood = state.calls.some(
        (call) =>
          call.done &&
          supersedes(call, key, page) &&
          asked.some((owner) => call.knowers & (1 << owner) && !(state.cut & link(holder, owner))),
      );
    }
  }

  #hasCompared({ sessions, nodes }: State, holder: number, owner: number, key: number): boolean {
    const isOwner =
      this.#exchange.owned(nodes[owner]!, owner).includes(key) || this.#mistake === 'compared by no owner';
    return sessions[holder]![owner]!.states[key] === 'live' && isOwner;
  }

  /** Sees whether a call is done; false if it has failed. */
  #mayReturn(state: State, call: Call): boolean {
    const { kind, node, key, version } = call;
    const { nodes, sessions } = state;
    if (kind === 'clear') {
      const waits = NODES.some((owner) =>
        underWay(sessions[node]![owner]!).some((change) => change.kind === 'clear' && change.version === version),
      );
      call.done = !waits;
      return true;
    }
    const asked = this.#exchange.ownersFor(state, node, key);
    const live = asked.filter((owner) => sessions[node]![owner]!.states[key] === 'live');
    if (kind === 'set' && nodes[node]!.pages[key]?.version !== version) return false;
    if (asked.some((owner) => sessions[node]![owner]!.states[key] === 'noted')) return true;
    const told = live.filter((owner) => call.takers & (1 << owner));
    const dropped = NODES.every((holder) =>
      live.every((owner) => !sessions[holder]![owner]!.drops.some((drop) => drop.key === key && drop.below <= version)),
    );
    if (this.#mistake === 'acknowledged when sent' && live.length > 0) call.done = true;
    else if (kind === 'set') {
      if (live.length === 0) {
        this.#exchange.remove(state, node, key);
        return false;
      }
      call.done = told.length === live.length && dropped;
    } else {
      if (live.length < asked.length || !asked.every((owner) => this.#exchange.isComplete(state, owner, key)))
        return false;
      call.done = told.length === live.length && (dropped || this.#mistake === 'delete without holders');
      call.isMissed = call.done && this.#hasMissed(state, call, asked);
    }
    return true;
  }

  #hasMissed({ nodes }: State, call: Call, asked: readonly number[]): boolean {
    const members = NODES.filter((node) => asked.every((owner) => nodes[owner]!.view & (1 << node)));
    return members.some((node) => {
      const page = nodes[node]!.pages[call.key];
      return nodes[node]!.joined && page?.state === 'good' && supersedes(call, call.key, page);
    });
  }

  conclude(state: State): void {
    for (const node of NODES) {
      if (!state.nodes[node]!.joined) continue;
      this.#exchange.list(state, node, node);
      this.#exchange.tellItself(state, node);
    }
    for (const holder of NODES) for (const key of state.keys) this.#openGate(state, holder, key);
    for (const call of state.calls.filter(({ done }) => !done)) {
      if (!this.#mayReturn(state, call)) this.#fail(state, call);
    }
  }
}

function contentOf({ version, origin, isNamed }: Pick<Page, 'version' | 'origin' | 'isNamed'>) {
  return { version, origin, isNamed };
}

function underWay({ changes, sent }: Session): Change[] {
  return sent ? [...changes, sent.change] : changes;
}
