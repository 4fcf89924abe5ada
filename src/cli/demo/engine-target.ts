import type { PythonEngine } from '../../processes/python-engine.js';
import { type AgentStatus, noCounts, type RunCounts, type RunResult } from '../cluster/agent-protocol.js';
import type { LoadTarget } from '../load/load.js';

/** An engine's result for one prompt; counts are in pages. */
interface TurnAnswer {
  readonly error?: string;
  readonly asked: number;
  /** Pages that the lookup reported. */
  readonly found: number;
  /** Pages read before the first miss. */
  readonly hits: number;
  /** All pages read, including those after a miss. */
  readonly read: number;
  readonly computed: number;
  readonly stored: number;
  readonly wrong_bytes: number;
  /** Microseconds of each lookup call; `read_us` and `set_us` are those of reads and sets. */
  readonly lookup_us: readonly number[];
  readonly read_us: readonly number[];
  readonly set_us: readonly number[];
}

interface StateAnswer {
  readonly error?: string;
  /** How pages travel between the node and this engine: `direct`, `staged`, `file` or `bytes`. */
  readonly mode: string;
  readonly exceptions: readonly string[];
  readonly reconnects: number;
}

/** Results of one engine, as `--json` prints them. */
export interface EngineReport {
  readonly mode: string;
  readonly turns: number;
  readonly pages_asked: number;
  readonly pages_read: number;
  /** Pages read before a turn's first miss; their prefill is saved. */
  readonly pages_hit: number;
  readonly pages_missed: number;
  readonly pages_computed: number;
  readonly pages_set: number;
  readonly wrong_bytes: number;
  readonly reconnects: number;
  /** Exceptions that the backend has caught in Python; must be empty. */
  readonly exceptions: readonly string[];
}

/** An engine in Python, attached to one node's client socket. It plays turns in the order of arrival. */
export class EngineTarget implements LoadTarget {
  readonly #engine: PythonEngine;
  readonly #pageBytes: number;
  readonly #nodeStatus: () => Promise<AgentStatus>;
  readonly #totals = { turns: 0, asked: 0, read: 0, hits: 0, computed: 0, stored: 0, wrongBytes: 0 };
  #mode = 'none';
  #duringTurn: { readonly work: () => Promise<void>; readonly onEnd: () => void } | undefined;

  /** `nodeStatus` asks the engine's node for its status, and rejects if the node is gone. */
  constructor(
    engine: PythonEngine,
    options: { readonly pageBytes: number; readonly nodeStatus: () => Promise<AgentStatus> },
  ) {
    this.#engine = engine;
    this.#pageBytes = options.pageBytes;
    this.#nodeStatus = options.nodeStatus;
  }

  /** Attaches the engine. `slots`: pages that it has room for, which is also the most that a turn may have. */
  async start(socket: string, slots: number): Promise<void> {
    const command = { op: 'start', socket, slots, page_bytes: this.#pageBytes };
    this.#mode = (await this.#engine.call<StateAnswer>(command)).mode;
  }

  /** How pages travelled when last asked: at {@link start} or after a successful {@link isServed}. */
  get mode(): string {
    return this.#mode;
  }

  /** Pages that the engine has looked up (`asked`) and read before a miss (`hits`) so far. */
  get pages(): { readonly asked: number; readonly hits: number } {
    return { asked: this.#totals.asked, hits: this.#totals.hits };
  }

  /** Runs `work` once during the next turn. The turn and the returned promise complete when both have ended. */
  duringNextTurn(work: () => Promise<void>): Promise<void> {
    return new Promise((onEnd) => {
      this.#duringTurn = { work, onEnd };
    });
  }

  async run(requests: readonly (readonly string[])[]): Promise<RunResult> {
    const counts = noCounts();
    const readLatenciesUs: number[] = [];
    const lookupLatenciesUs: number[] = [];
    for (const keys of requests) {
      const turn = await this.#turn(keys, counts);
      readLatenciesUs.push(...turn.read_us);
      lookupLatenciesUs.push(...turn.lookup_us);
    }
    return {
      counts,
      readLatenciesUs: Float64Array.from(readLatenciesUs),
      lookupLatenciesUs: Float64Array.from(lookupLatenciesUs),
    };
  }

  /** Whether pages with these keys, which no node has, can be stored and read back. If so, updates {@link mode}. */
  async isServed(keys: readonly string[]): Promise<boolean> {
    const answer = await this.#engine.call<{ error?: string; is_back: boolean; wrong_bytes: number }>({
      op: 'probe',
      keys,
    });
    this.#totals.wrongBytes += answer.wrong_bytes;
    if (answer.is_back) this.#mode = (await this.#engine.call<StateAnswer>({ op: 'state' })).mode;
    return answer.is_back;
  }

  async report(): Promise<EngineReport> {
    const { exceptions, reconnects } = await this.#engine.call<StateAnswer>({ op: 'state' });
    const { turns, asked, read, hits, computed, stored, wrongBytes } = this.#totals;
    return {
      mode: this.#mode,
      turns,
      pages_asked: asked,
      pages_read: read,
      pages_hit: hits,
      pages_missed: asked - hits,
      pages_computed: computed,
      pages_set: stored,
      wrong_bytes: wrongBytes,
      reconnects,
      exceptions,
    };
  }

  /** Detaches the engine and ends its process. */
  async close(): Promise<void> {
    await this.#engine.call({ op: 'close' });
    await this.#engine.end();
  }

  /** Ends the engine's process at once. */
  kill(): Promise<void> {
    return this.#engine.end();
  }

  async #turn(keys: readonly string[], counts: RunCounts): Promise<TurnAnswer> {
    const meanwhile = this.#duringTurn;
    this.#duringTurn = undefined;
    const before = await this.#hits();
    const [turn] = await Promise.all([this.#engine.call<TurnAnswer>({ op: 'turn', keys }), meanwhile?.work()]);
    const after = await this.#hits();
    counts.requests++;
    counts.asked += turn.asked;
    counts.prefixHits += turn.hits;
    if (turn.hits < turn.found) counts.staleMisses++;
    counts.set += turn.stored;
    counts.setFailures += turn.computed - turn.stored;
    counts.readBytes += turn.read * this.#pageBytes;
    counts.setBytes += turn.stored * this.#pageBytes;
    counts.wrongBytes += turn.wrong_bytes;
    counts.lookupUs += sum(turn.lookup_us);
    counts.readUs += sum(turn.read_us);
    counts.setUs += sum(turn.set_us);
    // Only the node knows where pages were found, and a killed node loses its counts.
    if (before !== undefined && after !== undefined) {
      counts.localHits += after.local - before.local;
      counts.remoteHits += after.remote - before.remote;
      counts.diskHits += after.disk - before.disk;
    }
    this.#totals.turns++;
    this.#totals.asked += turn.asked;
    this.#totals.read += turn.read;
    this.#totals.hits += turn.hits;
    this.#totals.computed += turn.computed;
    this.#totals.stored += turn.stored;
    this.#totals.wrongBytes += turn.wrong_bytes;
    meanwhile?.onEnd();
    return turn;
  }

  #hits(): Promise<AgentStatus['hits'] | undefined> {
    return this.#nodeStatus().then(
      ({ hits }) => hits,
      () => undefined,
    );
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
