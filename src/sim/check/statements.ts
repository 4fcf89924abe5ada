/** A process of a node: one that is started again is another. */
export interface ProcessId {
  readonly node: number;
  readonly process: number;
}

/** A call that changes what is under a key, from when it begins. */
export interface Statement extends ProcessId {
  readonly kind: 'named' | 'computed' | 'delete' | 'clear';
  /** What it sets, a number of its own; -1: nothing. */
  readonly content: number;
  /** Bytes of the page; 0 where nothing is set. */
  readonly length: number;
  readonly beginMs: number;
  /** Of a clear: which keys, by how their names begin. */
  readonly scope: string;
  /** A version that the node gave out just before. */
  readonly lowVersion: number;
  /** Infinity while it is under way; when the process was killed, the time of that. */
  endMs: number;
  /** A version given out just after; Infinity before that. */
  highVersion: number;
  /** Nodes that its node knew then, itself included: no others can have been told. */
  members: number;
  /** What the call has returned. `undefined`: nothing, so it may take effect or not, and later than it ended. */
  isTrue: boolean | undefined;
}

/** What has happened to one key. */
export interface KeyHistory {
  readonly number: number;
  readonly name: string;
  /** Every set, by its content. */
  readonly sets: Map<number, Statement>;
  /** Sets and deletes that have returned true, in the order of their ends. */
  readonly acknowledged: Statement[];
}

export interface StatementStart extends ProcessId {
  readonly kind: 'named' | 'computed' | 'delete';
  readonly key: string;
  readonly length?: number;
  readonly atMs: number;
  readonly version: number;
}

export interface StatementEnd {
  readonly atMs: number;
  readonly version: number;
  readonly members: number;
  readonly isTrue: boolean | undefined;
}

type StatementBegin = Pick<Statement, 'kind' | 'node' | 'process' | 'content' | 'length' | 'scope'> &
  Pick<StatementStart, 'atMs' | 'version'>;

/** Everything that was stated in one run, by key. */
export class Statements {
  readonly #keys = new Map<string, KeyHistory>();
  readonly #clears: Statement[] = [];
  readonly #open = new Set<Statement>();
  #contentsCount = 0;

  /** Whether anything was stated or read under that key. */
  has(key: string): boolean {
    return this.#keys.has(key);
  }

  of(key: string): KeyHistory {
    let history = this.#keys.get(key);
    if (history === undefined) {
      history = { number: this.#keys.size, name: key, sets: new Map(), acknowledged: [] };
      this.#keys.set(key, history);
    }
    return history;
  }

  /** What was stated about a key, as text, by time. */
  storyOf(key: string): string[] {
    const { sets, acknowledged } = this.of(key);
    const clears = this.#clears.filter(({ scope }) => key.startsWith(scope));
    const all = [...new Set([...sets.values(), ...acknowledged, ...clears])].sort((a, b) => a.beginMs - b.beginMs);
    return all.map((each) => {
      const { kind, node, process, content, length, beginMs, endMs, isTrue, lowVersion, highVersion } = each;
      const what = content < 0 ? kind : `${kind} ${content} (${length} bytes)`;
      const when = `${beginMs.toFixed(3)} to ${endMs.toFixed(3)} ms`;
      return `${when} node ${node} (process ${process}) ${what}: ${isTrue}, versions ${lowVersion} to ${highVersion}`;
    });
  }

  /** All clears that have returned, in the order of their ends. */
  get clears(): readonly Statement[] {
    return this.#clears;
  }

  begin({ key, kind, node, process, length = 0, atMs, version }: StatementStart): Statement {
    const history = this.of(key);
    const content = kind === 'delete' ? -1 : this.#contentsCount++;
    const statement = this.#begin({ kind, node, process, content, length, scope: '', atMs, version });
    if (kind !== 'delete') history.sets.set(content, statement);
    return statement;
  }

  beginClear(by: ProcessId & { readonly atMs: number; readonly version: number; readonly scope: string }): Statement {
    return this.#begin({ ...by, kind: 'clear', content: -1, length: 0 });
  }

  end(statement: Statement, key: string | undefined, { atMs, version, members, isTrue }: StatementEnd): void {
    if (!this.#open.delete(statement)) return;
    statement.endMs = atMs;
    statement.highVersion = version;
    statement.isTrue = isTrue;
    statement.members = members;
    if (isTrue !== true) return;
    if (statement.kind === 'clear') this.#clears.push(statement);
    else if (key !== undefined) this.of(key).acknowledged.push(statement);
  }

  /** The process has been killed: what it had under way has no end, and takes effect or not. */
  cut({ process }: Pick<ProcessId, 'process'>, atMs: number): void {
    for (const statement of this.#open) {
      if (statement.process !== process) continue;
      this.#open.delete(statement);
      statement.endMs = atMs;
    }
  }

  #begin(given: StatementBegin): Statement {
    const { kind, node, process, content, length, scope, atMs: beginMs, version: lowVersion } = given;
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
      members: 1,
      isTrue: undefined,
    };
    this.#open.add(statement);
    return statement;
  }
}
