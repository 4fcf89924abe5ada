import test, { type ExecutionContext } from 'ava';
import type { HostNetwork } from '../../src/sim/world/network/host-network.js';
import type { ProcessCounts, SimProcess } from '../../src/sim/world/sim-process.js';
import { World } from '../../src/sim/world/world.js';
import { PATIENCE_MS } from './support.js';

const POLL_MS = 5;
/** Milliseconds after which closed objects, also connections of the kernel, have nothing left to do. */
const QUIET_AFTER_MS = 60_000;
/** Virtual time that a test may take. */
const TEST_MAX_MS = 600_000;
const OPERATOR = '10.1.0.1';
const NOTHING: ProcessCounts = { timers: 0, connections: 0, servers: 0, openFiles: 0, memoryBytes: 0 };

/** The world of one test: hosts by their addresses, and the test's own waiting in virtual time. */
export class TestWorld extends World {
  /** A process of the test itself, on a host that no partition affects. */
  readonly operator: SimProcess;
  readonly #ends: (() => unknown)[] = [];
  readonly #rules: (() => void)[] = [];
  /** Work on the real machine, during which the world stands still. */
  #outside: Promise<unknown> | undefined;

  constructor() {
    super({ seed: Number(process.env.MESHCACHE_TEST_SEED ?? 1) });
    this.operator = this.process(OPERATOR);
  }

  /** A new process on the host with this address; default: on a host of its own. The host's name is its address. */
  process(address = `10.0.0.${this.hosts.size}`): SimProcess {
    return (this.hosts.get(address) ?? this.host({ name: address, address })).start();
  }

  /** Polls in virtual time; rejects after `PATIENCE_MS` of it. */
  async until(condition: () => boolean | Promise<boolean>): Promise<void> {
    const giveUpAtMs = this.nowMs + PATIENCE_MS;
    while (!(await condition())) {
      if (this.nowMs > giveUpAtMs) throw new Error(`condition not met within ${PATIENCE_MS} ms: ${condition}`);
      await this.sleep(POLL_MS);
    }
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.at(this.nowMs + ms, resolve));
  }

  /** Waits for work of the real machine, while virtual time stands still. */
  outside<T>(work: Promise<T>): Promise<T> {
    this.#outside = work;
    return work;
  }

  /** Runs until the test's `work` is settled, and returns its outcome. */
  async finish(work: Promise<void>): Promise<void> {
    let isSettled = false;
    const settle = (): void => {
      isSettled = true;
    };
    work.then(settle, settle);
    const untilMs = this.nowMs + TEST_MAX_MS;
    for (;;) {
      await this.run({ until: () => isSettled || this.#outside !== undefined, untilMs });
      if (isSettled) return work;
      if (this.#outside === undefined) throw new Error(`not ended within ${TEST_MAX_MS} ms`);
      // The end of one may begin another.
      while (this.#outside !== undefined) {
        const outside: Promise<unknown> = this.#outside;
        this.#outside = undefined;
        await outside.catch(() => {});
      }
    }
  }

  /** Runs `end` when the test is over, in reverse order, as the last thing in the world. */
  teardown(end: () => unknown): void {
    this.#ends.push(end);
  }

  /** Registers a {@link teardown} that is skipped if the process is dead by then, as it would never resolve. */
  atEnd(process: SimProcess, end: () => unknown): void {
    this.teardown(() => (process.isAlive ? process.run(end) : undefined));
  }

  /** From now on these hosts and all others reach only those of their own side. */
  isolate(...addresses: string[]): void {
    const all = [...this.hosts.values()].filter(({ address }) => address !== OPERATOR);
    const [inside, outside] = [true, false].map((isInside) =>
      all.filter(({ address }) => addresses.includes(address) === isInside).map(({ network }) => network),
    ) as [HostNetwork[], HostNetwork[]];
    this.#cut(inside, outside);
    this.#cut(outside, inside);
  }

  /** From now on messages from `from` to `to` are lost. */
  cutOneWay(from: string, to: string): void {
    const [here, there] = this.#networks(from, to);
    this.#cut([here], [there]);
  }

  /** From now on messages from `from` to `to` have this bandwidth. */
  narrow(from: string, to: string, bytesPerS: number): void {
    const [here, there] = this.#networks(from, to);
    this.#rules.push(this.fabric.addRule({ from: new Set([here]), to: new Set([there]), trouble: { bytesPerS } }));
  }

  heal(): void {
    for (const end of this.#rules.splice(0)) end();
  }

  /** @internal Runs the teardowns of the test. */
  async end(): Promise<void> {
    this.heal();
    for (const end of this.#ends.reverse()) await end();
  }

  #networks(from: string, to: string): [HostNetwork, HostNetwork] {
    const [here, there] = [from, to].map((address) => this.hosts.get(address)?.network);
    if (here === undefined || there === undefined) throw new Error(`no hosts ${from} and ${to}`);
    return [here, there];
  }

  #cut(from: HostNetwork[], to: HostNetwork[]): void {
    this.#rules.push(this.fabric.addRule({ from: new Set(from), to: new Set(to), trouble: { isBlocked: true } }));
  }
}

/**
 * A test in a simulated world, on virtual time: it does not depend on the machine's speed, and is the same each time.
 * MESHCACHE_TEST_SEED makes it go another way. `t.teardown` is the world's. At the end nothing that it has started may
 * be left.
 */
export function simulated(title: string, body: (t: ExecutionContext, world: TestWorld) => Promise<void>): void {
  // Only one world may run at a time.
  test.serial(title, async (t) => {
    const world = new TestWorld();
    try {
      await world.finish(body(inWorld(t, world), world));
      await world.finish(world.end());
      await world.runFor(QUIET_AFTER_MS);
      for (const { processes } of world.hosts.values()) {
        for (const { name, counts } of processes) t.deepEqual(counts, NOTHING, `what ${name} has left behind`);
      }
      t.is(await world.run(), 'idle');
    } finally {
      world.close();
    }
  });
}

function inWorld(t: ExecutionContext, world: TestWorld): ExecutionContext {
  const teardown = (end: () => unknown): void => world.teardown(end);
  return new Proxy(t, { get: (target, name) => (name === 'teardown' ? teardown : Reflect.get(target, name)) });
}
