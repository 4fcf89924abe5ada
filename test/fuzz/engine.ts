import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import { AllocationWatch } from './allocations.js';
import type { Coverage } from './coverage.js';
import { checkPrototypes, Finding, type Fuzzer, INPUT_MAX_BYTES, RUN_MAX_MS } from './fuzzer.js';
import { below, mutateBytes, oneOf } from './mutations.js';
import { mutateValue } from './values.js';
import type { Watchdog } from './watchdog.js';

/**
 * Inputs between two looks at what has run: a look takes some milliseconds, and so does finding out which input it was.
 */
const BATCH_MIN_COUNT = 16;
const BATCH_MAX_COUNT = 4096;
const BATCH_MS = 250;
/** Runs that are spent on making the input of a failure shorter. */
const SHORTEN_MAX_RUNS = 2_000;
/** Part of the inputs that are made from what was added to the pool lately. */
const RECENT_INPUTS = 16;

export interface Failure {
  readonly error: unknown;
  /** The shortest input found that fails likewise. */
  readonly input: Buffer;
}

export interface Outcome {
  readonly executions: number;
  readonly seconds: number;
  /** Inputs that have reached something new, in the order in which they were found. */
  readonly found: readonly Buffer[];
  readonly failure: Failure | undefined;
}

export interface EngineOptions {
  readonly seed: number;
  /** Without it inputs are not judged: all are made from the seeds and the corpus. */
  readonly coverage?: Coverage | undefined;
  readonly watchdog?: Watchdog | undefined;
  readonly corpus?: readonly Uint8Array[];
}

/** Makes inputs for one target and runs them, guided by which code they reach. */
export class Engine {
  readonly #fuzzer: Fuzzer;
  readonly #random: RandomSource;
  readonly #coverage: Coverage | undefined;
  readonly #watchdog: Watchdog | undefined;
  readonly #allocations = new AllocationWatch();
  readonly #pool: Uint8Array[] = [];
  readonly #found: Buffer[] = [];
  readonly #corpus: readonly Uint8Array[];
  #executions = 0;

  constructor(fuzzer: Fuzzer, { seed, coverage, watchdog, corpus = [] }: EngineOptions) {
    this.#fuzzer = fuzzer;
    this.#random = seededRandom(seed);
    this.#coverage = coverage;
    this.#watchdog = watchdog;
    this.#corpus = corpus;
  }

  /** Seeds and corpus first; then new inputs until the time is over, so many have been run, or one has failed. */
  async run(limits: { readonly seconds: number; readonly executions?: number }): Promise<Outcome> {
    const { seconds, executions = Number.POSITIVE_INFINITY } = limits;
    const startMs = performance.now();
    const endMs = startMs + seconds * 1000;
    this.#coverage?.forget();
    this.#allocations.install();
    let failure: Failure | undefined;
    try {
      failure = await this.#runKnown();
      for (
        let count = BATCH_MIN_COUNT;
        failure === undefined && performance.now() < endMs && this.#executions < executions;
      ) {
        const [batchMs, known] = [performance.now(), this.#found.length];
        failure = await this.#runBatch(Math.min(count, executions - this.#executions));
        // Large ones while nothing is found.
        const isShort = performance.now() - batchMs < BATCH_MS;
        count = isShort && this.#found.length === known ? count * 2 : count / 2;
        count = Math.min(BATCH_MAX_COUNT, Math.max(BATCH_MIN_COUNT, Math.round(count)));
        // Timers and messages of whoever waits for this.
        await new Promise((resolve) => setImmediate(resolve));
      }
    } finally {
      this.#allocations.remove();
      this.#watchdog?.end();
    }
    return { executions: this.#executions, seconds: (performance.now() - startMs) / 1000, found: this.#found, failure };
  }

  async #runKnown(): Promise<Failure | undefined> {
    for (const input of [...this.#fuzzer.seeds(this.#random), ...this.#corpus]) {
      this.#pool.push(input);
      const failure = await this.#try(Buffer.from(input));
      if (failure !== undefined) return failure;
    }
    if (this.#pool.length === 0) this.#pool.push(Buffer.alloc(0));
    this.#coverage?.keep(this.#coverage.poll());
    return undefined;
  }

  async #runBatch(count: number): Promise<Failure | undefined> {
    const inputs: Buffer[] = [];
    for (let i = 0; i < count; i++) {
      const input = this.#newInput();
      inputs.push(input);
      const failure = await this.#try(input);
      if (failure !== undefined) return failure;
    }
    const ran = this.#coverage?.poll() ?? [];
    if (this.#coverage?.isNews(ran)) {
      await this.#keepNews(inputs, this.#coverage);
      // Whatever it was: what does not happen again is not looked for again.
      this.#coverage.keep(ran);
    }
    return undefined;
  }

  /** Finds by halves which of the inputs reach what none before them has reached. */
  async #keepNews(inputs: readonly Buffer[], coverage: Coverage): Promise<void> {
    for (const input of inputs) await this.#execute(input);
    const ran = coverage.poll();
    if (!coverage.isNews(ran)) return;
    if (inputs.length === 1) {
      coverage.keep(ran);
      this.#pool.push(inputs[0] as Buffer);
      this.#found.push(inputs[0] as Buffer);
      return;
    }
    const half = inputs.length >>> 1;
    await this.#keepNews(inputs.slice(0, half), coverage);
    await this.#keepNews(inputs.slice(half), coverage);
  }

  #newInput(): Buffer {
    const random = this.#random;
    const isRecent = (random.u32() & 3) === 0;
    const parent = isRecent ? oneOf(random, this.#pool.slice(-RECENT_INPUTS)) : oneOf(random, this.#pool);
    const maxBytes = this.#fuzzer.inputMaxBytes ?? INPUT_MAX_BYTES;
    if (this.#fuzzer.form === 'value' && below(random, 8) !== 0) {
      const changed = mutateValue(parent, random, this.#pool);
      if (changed !== undefined && changed.length <= maxBytes) return changed;
    }
    return mutateBytes(parent, random, { pool: this.#pool, tokens: this.#fuzzer.tokens ?? [], maxBytes });
  }

  async #try(input: Buffer): Promise<Failure | undefined> {
    const error = await this.#execute(input);
    return error === undefined ? undefined : this.#shortened(input, error);
  }

  /** What was wrong with one run; undefined: nothing. */
  async #execute(input: Buffer): Promise<Error | undefined> {
    this.#executions++;
    this.#watchdog?.begin(this.#fuzzer.name, input);
    this.#allocations.reset();
    const startMs = performance.now();
    try {
      // A copy of exactly these bytes: what is read beyond them is not the next input.
      const running = this.#fuzzer.run(Buffer.from(input));
      if (running instanceof Promise) await running;
      const largestBytes = this.#allocations.largestBytes;
      const allowedBytes = this.#fuzzer.allocationMaxBytes?.(input.length) ?? Number.POSITIVE_INFINITY;
      if (largestBytes > allowedBytes)
        throw new Finding(`${largestBytes} bytes allocated at once, ${allowedBytes} are allowed`);
      checkPrototypes();
      return performance.now() - startMs > RUN_MAX_MS ? await this.#slow(input) : undefined;
    } catch (error) {
      return error instanceof Error ? error : new Finding(`thrown: ${String(error)}`);
    }
  }

  /** Once may be the machine's fault. */
  async #slow(input: Buffer): Promise<Error | undefined> {
    const times: number[] = [];
    for (let i = 0; i < 2; i++) {
      const startMs = performance.now();
      await this.#fuzzer.run(Buffer.from(input));
      times.push(Math.round(performance.now() - startMs));
    }
    return times.every((ms) => ms > RUN_MAX_MS) ? new Finding(`one input takes ${times.join(' and ')} ms`) : undefined;
  }

  /** Leaves out halves, quarters and so on, down to single bytes, as long as it fails in the same way. */
  async #shortened(input: Buffer, error: Error): Promise<Failure> {
    let [shortest, shown] = [input, error];
    let runs = 0;
    for (let length = shortest.length >>> 1; length >= 1 && runs < SHORTEN_MAX_RUNS; length >>>= 1) {
      for (let at = 0; at < shortest.length && runs < SHORTEN_MAX_RUNS; ) {
        const candidate = Buffer.concat([shortest.subarray(0, at), shortest.subarray(at + length)]);
        const again = await this.#execute(candidate);
        runs++;
        if (again === undefined || kindOf(again) !== kindOf(error)) at += length;
        else [shortest, shown] = [candidate, again];
      }
    }
    return { error: shown, input: shortest };
  }
}

/** Numbers aside: these change with the input. */
function kindOf(error: Error): string {
  return `${error.name}: ${error.message.replace(/\d+/g, '#').slice(0, 40)}`;
}
