import type { ExecutionContext } from 'ava';
import type { Environment } from '../../../src/base/environment/environment.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import {
  type MrHandle,
  type ReadRequest,
  TransferEngine,
  type TransferEngineOptions,
} from '../../../src/native/transfer-engine.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { tiled } from './bytes.js';
import { knownHost } from './known-host.js';
import { type ServingOptions, ServingProcess } from './serving-process.js';
import { devices } from './soft-devices.js';

/** Memory that an engine of this process has registered. */
export interface TestRegion {
  readonly engine: TransferEngine;
  readonly memory: HostRegion;
  readonly handle: MrHandle;
}

/** Source of a read: a region of this process or of another one. */
export interface Source {
  readonly endpoint: string;
  readonly addr: bigint;
  readonly rkey: number;
}

/** The engines, memory and processes of one test, all of which end with it. */
export class EngineBench {
  /** Milliseconds added to the clock of engines, so that a pause after a failure is over at once. */
  skewMs = 0;
  readonly #env: Environment;

  constructor(readonly t: ExecutionContext) {
    const clock = { ...systemClock, nowMs: () => systemClock.nowMs() + this.skewMs };
    this.#env = systemEnvironment({ clock, log: silentLogger });
  }

  /** Creates an engine, on the first device by default. */
  engine(options: TransferEngineOptions = {}): TransferEngine {
    const engine = new TransferEngine({ bindHost: devices[0]?.address, env: this.#env, host: knownHost, ...options });
    this.t.teardown(() => engine.close());
    return engine;
  }

  /** Registers memory of `length` bytes, filled from `seed`, or with zeros. */
  region(engine: TransferEngine, length: number, seed?: number): TestRegion {
    const memory = HostRegion.allocate(length);
    if (seed !== undefined) memory.bytes().set(tiled(seed, length));
    this.t.teardown(async () => {
      await engine.close();
      memory.free();
    });
    return { engine, memory, handle: engine.registerMr(memory.addr, length) };
  }

  async process(options: Partial<ServingOptions> = {}): Promise<ServingProcess> {
    const serving = await ServingProcess.start({ bindHost: devices[0]?.address, length: 2 ** 20, seed: 1, ...options });
    this.t.teardown(() => serving.kill());
    return serving;
  }
}

export function sourceOf(from: TestRegion | ServingProcess): Source {
  if (from instanceof ServingProcess) return { ...from.region, addr: BigInt(from.region.addr) };
  return { endpoint: from.engine.localEndpoint(), addr: from.handle.addr, rkey: from.handle.rkey };
}

/** A request that reads `length` bytes at `from` of the source to `to` of the target. */
export function request(source: Source, from: number, target: TestRegion, to: number, length: number): ReadRequest {
  return {
    remoteNode: source.endpoint,
    remoteAddr: source.addr + BigInt(from),
    rkey: source.rkey,
    localAddr: target.memory.addr + BigInt(to),
    length,
  };
}
