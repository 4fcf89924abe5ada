/** Identifies a process of a node; a restarted node has a new process. */
export interface ProcessId {
  readonly node: number;
  readonly process: number;
}

/** A call that changes contents, recorded from its start. */
export interface Statement extends ProcessId {
  readonly kind: 'named' | 'computed' | 'delete' | 'clear';
  /** Number of the content that the call sets; -1: it sets none. */
  readonly content: number;
  /** Bytes of the page; 0 if nothing is set. */
  readonly length: number;
  readonly beginMs: number;
  /** For a clear: the prefix of the names of its keys; otherwise empty. */
  readonly scope: string;
  /** A version that the node issued just before the call. */
  readonly lowVersion: number;
  /** End of the call: Infinity while it is in progress; the time of the kill if the process was killed. */
  endMs: number;
  /** A version that the node issued just after the call; Infinity until then. */
  highVersion: number;
  /** Milliseconds after which the content that the call sets expires; Infinity: never. */
  readonly expiresInMs: number;
  /** A version at which the content has expired by the clock of the node; Infinity before the call ends. */
  expiredBy: number;
  /** Number of nodes that the node knew at the end, itself included; no others can have been told. */
  members: number;
  /** Result of the call. `undefined`: it returned nothing, so it may or may not take effect, even after its end. */
  isTrue: boolean | undefined;
}

/** Everything that was done with one key. */
export interface KeyHistory {
  readonly number: number;
  readonly name: string;
  /** Every set, by the number of its content. */
  readonly sets: Map<number, Statement>;
  /** Sets and deletes that returned true, in the order of their ends. */
  readonly acknowledged: Statement[];
  /** Whether any delete of the key has begun. */
  isDeleted: boolean;
  /** Whether any set of the key has an expiry. */
  mayExpire: boolean;
}

interface StatementStart extends ProcessId {
  readonly kind: 'named' | 'computed' | 'delete';
  readonly key: string;
  readonly length?: number;
  readonly expiresInMs?: number;
  readonly atMs: number;
  readonly version: number;
}

interface StatementEnd {
  readonly atMs: number;
  readonly version: number;
  readonly members: number;
  readonly isTrue: boolean | undefined;
  /** Default: Infinity. */
  readonly expiredBy?: number;
}

type StatementBegin = Pick<Statement, 'kind' | 'node' | 'process' | 'content' | 'length' | 'scope' | 'expiresInMs'> &
  Pick<StatementStart, 'atMs' | 'version'>;

/** All calls of one run that change contents, by key. */
export class Statements {
  readonly #keys = new Map<string, KeyHistory>();
  readonly #clears: Statement[] = [];
  readonly #open = new Set<Statement>();
  /** Name prefixes of all clears that have begun. */
  readonly #clearedScopes = new Set<string>();
  #contentsCount = 0;

  /** Whether any call had this key. */
  has(key: string): boolean {
    return this.#keys.has(key);
  }

  of(key: string): KeyHistory {
    let history = this.#keys.get(key);
    if (history === undefined) {
      const facts = { isDeleted: false, mayExpire: false };
      history = { number: this.#keys.size, name: key, sets: new Map(), acknowledged: [], ...facts };
      this.#keys.set(key, history);
    }
    return history;
  }

  /**
   * Whether the page of the key may disappear: a delete or clear of it has begun, which may take effect at any time, or
   * a set of it has an expiry.
   */
  mayBeRemoved(key: string): boolean {
    const { isDeleted, mayExpire } = this.of(key);
    return isDeleted || mayExpire || [...this.#clearedScopes].some((scope) => key.startsWith(scope));
  }

  /** The calls with this key as text, in the order of their starts. */
  storyOf(key: string): string[] {
    const { sets, acknowledged } = this.of(key);
    const clears = this.#clears.filter(({ scope }) => key.startsWith(scope));
    const all = [...new Set([...sets.values(), ...acknowledged, ...clears])].sort((a, b) => a.beginMs - b.beginMs);
    return all.map((each) => {
      const { kind, node, process, content, length, expiresInMs, beginMs, endMs, isTrue, lowVersion, highVersion } =
        each;
      const expires = Number.isFinite(expiresInMs) ? `, expires in ${expiresInMs} ms` : '';
      const what = content < 0 ? kind : `${kind} ${content} (${length} bytes${expires})`;
      const when = `${beginMs.toFixed(3)} to ${endMs.toFixed(3)} ms`;
      return `${when} node ${node} (process ${process}) ${what}: ${isTrue}, versions ${lowVersion} to ${highVersion}`;
    });
  }

  /** All clears that returned true, in the order of their ends. */
  get clears(): readonly Statement[] {
    return this.#clears;
  }

  begin({
    key,
    kind,
    node,
    process,
    length = 0,
    expiresInMs = Number.POSITIVE_INFINITY,
    ...at
  }: StatementStart): Statement {
    const history = this.of(key);
    const content = kind === 'delete' ? -1 : this.#contentsCount++;
    const statement = this.#begin({ kind, node, process, content, length, scope: '', expiresInMs, ...at });
    if (kind === 'delete') history.isDeleted = true;
    else history.sets.set(content, statement);
    if (Number.isFinite(expiresInMs)) history.mayExpire = true;
    return statement;
  }

  beginClear(by: ProcessId & { readonly atMs: number; readonly version: number; readonly scope: string }): Statement {
    this.#clearedScopes.add(by.scope);
    return this.#begin({ ...by, kind: 'clear', content: -1, length: 0, expiresInMs: Number.POSITIVE_INFINITY });
  }

  end(statement: Statement, key: string | undefined, ended: StatementEnd): void {
    const { atMs, version, members, isTrue, expiredBy = Number.POSITIVE_INFINITY } = ended;
    if (!this.#open.delete(statement)) return;
    statement.endMs = atMs;
    statement.expiredBy = expiredBy;
    statement.highVersion = version;
    statement.isTrue = isTrue;
    statement.members = members;
    if (isTrue !== true) return;
    if (statement.kind === 'clear') this.#clears.push(statement);
    else if (key !== undefined) this.of(key).acknowledged.push(statement);
  }

  /** Notes that a process was killed: its calls in progress never end, and may or may not take effect. */
  cut({ process }: Pick<ProcessId, 'process'>, atMs: number): void {
    for (const statement of this.#open) {
      if (statement.process !== process) continue;
      this.#open.delete(statement);
      statement.endMs = atMs;
    }
  }

  #begin(given: StatementBegin): Statement {
    const { kind, node, process, content, length, scope, expiresInMs, atMs: beginMs, version: lowVersion } = given;
    const statement: Statement = {
      kind,
      node,
      process,
      content,
      length,
      scope,
      beginMs,
      lowVersion,
      endMs: Number.POSITIVE_INFINITY,
      highVersion: Number.POSITIVE_INFINITY,
      expiresInMs,
      expiredBy: Number.POSITIVE_INFINITY,
      members: 1,
      isTrue: undefined,
    };
    this.#open.add(statement);
    return statement;
  }
}
