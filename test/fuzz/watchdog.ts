import { Worker } from 'node:worker_threads';

const INPUT_MAX_BYTES = 1 << 16;
const HANG_MS = 20_000;

/** Looks from another thread: a decoder that never returns cannot be stopped from its own. */
const PROGRAM = `
const { workerData } = require('node:worker_threads');
const { writeSync } = require('node:fs');
const { state, input, names, hangMs } = workerData;
let last = -1, idleTurns = 0;
// Turns and not time: they stand still with the process when it is stopped.
setInterval(() => {
  const now = Atomics.load(state, 0);
  if (now !== last || Atomics.load(state, 1) < 0) { last = now; idleTurns = 0; return; }
  if (++idleTurns < hangMs / 500) return;
  const name = names[Atomics.load(state, 1)];
  const hex = Buffer.from(input.slice(0, Atomics.load(state, 2))).toString('hex');
  writeSync(2, 'fuzz: ' + name + ' hangs; input as hex:\\n' + hex + '\\n');
  process.kill(process.pid, 'SIGKILL');
}, 500);
`;

/** Ends the process, and says by which input, when one run does not come to an end. */
export class Watchdog {
  readonly #state = new Int32Array(new SharedArrayBuffer(12));
  readonly #input = new Uint8Array(new SharedArrayBuffer(INPUT_MAX_BYTES));
  readonly #names: readonly string[];
  readonly #worker: Worker;

  constructor(names: readonly string[], hangMs = HANG_MS) {
    this.#names = names;
    this.#state[1] = -1;
    const workerData = { state: this.#state, input: this.#input, names, hangMs };
    this.#worker = new Worker(PROGRAM, { eval: true, workerData });
    this.#worker.unref();
  }

  begin(name: string, input: Uint8Array): void {
    const bytes = input.subarray(0, INPUT_MAX_BYTES);
    this.#input.set(bytes);
    this.#state[2] = bytes.length;
    this.#state[1] = this.#names.indexOf(name);
    Atomics.add(this.#state, 0, 1);
  }

  end(): void {
    this.#state[1] = -1;
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}
