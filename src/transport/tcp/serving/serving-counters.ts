/** Counters of the serving thread, in the order of the 64-bit integers in shared memory. */
const NAMES = [
  'servedOps',
  'servedBytes',
  'refusedOps',
  'protocolErrors',
  'refusedConnections',
  'connections',
] as const;

export type ServingCounterName = (typeof NAMES)[number];

/** Counters in shared memory that one thread writes and another reads. */
export class ServingCounters {
  readonly memory: SharedArrayBuffer;
  readonly #values: BigInt64Array;

  /** Uses existing `memory`, or new counters that are all zero. */
  constructor(memory = new SharedArrayBuffer(NAMES.length * 8)) {
    this.memory = memory;
    this.#values = new BigInt64Array(memory);
  }

  add(name: ServingCounterName, amount: number): void {
    if (amount !== 0) Atomics.add(this.#values, NAMES.indexOf(name), BigInt(amount));
  }

  value(name: ServingCounterName): number {
    return Number(Atomics.load(this.#values, NAMES.indexOf(name)));
  }
}
