/**
 * The state of the reference model: three nodes, one or two keys, the links between the nodes, and what was promised to
 * callers. Everything is plain data. All moments and versions are whole numbers of one hybrid clock for each node; only
 * their order counts.
 */

export const NODES = [0, 1, 2] as const;

/** Histories of owners: three nodes, and so many starts. */
export const HISTORIES = 9;

/** How many owners a key has, if so many nodes are members. */
export const REPLICAS = 2;

/** A page in the memory of a node. */
export interface Page {
  version: number;
  /** The node that has set it. */
  origin: number;
  /**
   * Whether its content is not a function of its key. Of computed pages any number of contents are good at once; they
   * mean the same.
   */
  isNamed: boolean;
  /**
   * `new`: being set; `copying`: a copy, on its way; neither has been taken by an owner yet. `kept`: from before a
   * start, and not compared by every owner yet. None of these can be read. `good`: all others.
   */
  state: 'new' | 'copying' | 'kept' | 'good';
  /** Whether it was `kept` and became readable although a node in touch knew better. */
  isWronglyGood: boolean;
}

/** What an owner has noted of a key. */
export interface Note {
  /** Pages below this version are void. */
  below: number;
  /** Named pages below this one are void; not lower than the other. */
  namedBelow: number;
  /** When it was noted, by the owner's clock. */
  at: number;
}

/**
 * What a holder tells an owner: how it is with a key when it is told, and below which version its deletes make pages
 * void; 0: it has deleted nothing. Or that an origin has cleared. Of two about the same key the owner is told once.
 */
export type Change = { kind: 'key'; key: number; below: number } | { kind: 'clear'; origin: number; version: number };

/** A change on its way, with the page that the holder had when it was sent. */
export interface Sent {
  change: Change;
  page: Page | null;
}

/** What an owner tells a holder, in order: which pages of the key are void. */
export type Drop = Pick<Note, 'below' | 'namedBelow'> & { key: number };

/** What an owner knows of a holder's page. */
export type Listed = Pick<Page, 'version' | 'isNamed'>;

/**
 * How it is between a holder and an owner with a key. `broken`: neither knows of the other. `noted`: the owner knows
 * what the holder has noted as an owner of the key. `live`: the owner, which knows by then what all members have noted,
 * has compared the holder's page, and is told of every change.
 */
export type KeyState = 'broken' | 'noted' | 'live';

/** From a holder to an owner. An owner that gets a further key begins anew with that key alone. */
export interface Session {
  /** By key. */
  states: KeyState[];
  /** Changes that are to be told. */
  changes: Change[];
  /** The one that is on its way. */
  sent: Sent | null;
  drops: Drop[];
}

/** One node: as a holder of pages, and as an owner of keys. */
export interface Node {
  /** Which start of the node this is; an owner's notes are a history, named by node and start. */
  start: number;
  clock: number;
  /** Whether other nodes have told it who is a member. */
  joined: boolean;
  /** The members that it knows, as bits. */
  view: number;
  pages: (Page | null)[];
  /** By key and history: up to when its page has been compared with what that owner has noted of the key. */
  heard: number[][];
  /** By origin: pages which that node has set up to this version are void. */
  cleared: number[];
  notes: (Note | null)[];
  /** By key and history: the latest moment at which anything was noted that is forgotten now. */
  forgotten: number[][];
  /** By key and holder. */
  lists: (Listed | null)[][];
}

/** A call that sets, deletes or clears, as its caller knows it. */
export interface Call {
  kind: 'set' | 'delete' | 'clear';
  node: number;
  /** -1: all keys. */
  key: number;
  version: number;
  /** Whether it sets a named page. */
  isNamed: boolean;
  done: boolean;
  /** The nodes that know of it, or have known and forgotten, as bits; a node that starts anew knows nothing. */
  knowers: number;
  /**
   * The owners that have taken what was stated to them, as bits. To know of it from others is not enough: they may know
   * better.
   */
  takers: number;
  /** Whether all nodes were in touch since it began. */
  undisturbed: boolean;
  /** The latest version of a call which this one replaces, and which was done before this one began. */
  after: number;
  /** Whether its version is not later than that of the other one, which an owner knew when it took this one. */
  isOvertaken: boolean;
  /**
   * Whether a node that all owners counted as a member could still read what this call deletes, in its own memory, when
   * it was done.
   */
  isMissed: boolean;
  /** Whether nothing but calls has happened to its page and its nodes since it began. */
  isLasting: boolean;
}

/** Whether a content must not be read any more once the call is done. */
export function supersedes(call: Call, key: number, content: Omit<Page, 'state' | 'isWronglyGood'>): boolean {
  if (call.kind === 'clear') return content.origin === call.node && content.version <= call.version;
  const concerns = call.kind === 'delete' || call.isNamed || content.isNamed;
  return call.key === key && concerns && content.version < call.version;
}

/** Whether pages of the key with this version and kind are void. */
export function isVoidBy(note: Drop | Note | null | undefined, { version, isNamed }: Listed): boolean {
  return note != null && version < (isNamed ? note.namedBelow : note.below);
}

/** How often something may still happen. */
export interface Budget {
  sets: number;
  computed: number;
  deletes: number;
  clears: number;
  evictions: number;
  copies: number;
  cuts: number;
  restarts: number;
  lapses: number;
}

export interface State {
  readonly keys: readonly number[];
  /** Cut links, as bits: 0 and 1, 0 and 2, 1 and 2. */
  cut: number;
  nodes: Node[];
  /** By holder, then owner. */
  sessions: Session[][];
  calls: Call[];
  budget: Budget;
}

/** The bit of the link between two nodes; 0 for a node and itself. */
export function link(one: number, other: number): number {
  return one === other ? 0 : 1 << (one + other - 1);
}

/** The name of the history that an owner writes. */
export function historyOf(node: number, start: number): number {
  return node + NODES.length * start;
}

/** The owners of a key by a list of members. */
export function owners(key: number, view: number): number[] {
  const found: number[] = [];
  for (let step = 0; step < NODES.length && found.length < REPLICAS; step++) {
    const node = (key + step) % NODES.length;
    if (view & (1 << node)) found.push(node);
  }
  return found;
}

/** Three members in touch with each other, without pages. */
export function initial(budget: Budget, keyCount: number): State {
  const keys = [...new Array(keyCount).keys()];
  return {
    keys,
    cut: 0,
    nodes: NODES.map(() => ({ ...freshNode(keys, 0), joined: true, view: 7 })),
    sessions: NODES.map(() =>
      NODES.map(() => ({ states: keys.map(() => 'live' as const), changes: [], sent: null, drops: [] })),
    ),
    calls: [],
    budget,
  };
}

/** A node that has just started, with nothing. */
export function freshNode(keys: readonly number[], start: number): Node {
  return {
    start,
    clock: 0,
    joined: false,
    view: 0,
    pages: keys.map(() => null),
    heard: keys.map(() => new Array(HISTORIES).fill(0)),
    cleared: NODES.map(() => 0),
    notes: keys.map(() => null),
    forgotten: keys.map(() => new Array(HISTORIES).fill(0)),
    lists: keys.map(() => NODES.map(() => null)),
  };
}

/** A copy that shares nothing with the original. */
export function copyOf(state: State): State {
  return {
    keys: state.keys,
    cut: state.cut,
    nodes: state.nodes.map((node) => ({
      ...node,
      pages: node.pages.map((page) => page && { ...page }),
      heard: node.heard.map((moments) => [...moments]),
      cleared: [...node.cleared],
      notes: node.notes.map((note) => note && { ...note }),
      forgotten: node.forgotten.map((moments) => [...moments]),
      lists: node.lists.map((versions) => [...versions]),
    })),
    sessions: state.sessions.map((row) =>
      row.map((session) => ({
        ...session,
        states: [...session.states],
        changes: [...session.changes],
        drops: [...session.drops],
      })),
    ),
    calls: state.calls.map((call) => ({ ...call })),
    budget: { ...state.budget },
  };
}
