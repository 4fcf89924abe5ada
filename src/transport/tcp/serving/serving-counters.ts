/** What the serving thread counts, in the order of the shared memory's 64-bit integers. */
const NAMES = [
  'servedOps',
  'servedBytes',
  'refusedOps',
  'protocolErrors',
  'refusedConnections',
  'connections',
] as const;

export type ServingCounterName = (typeof NAMES)[number];

/** Counters that one thread moves and another reads, without a message between them. */
export class ServingCounters {
  readonly memory: SharedArrayBuffer;
  readonly #values: BigInt64Array;

  /** Without `memory`: all zero. */
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
