import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { ManualClock } from '../_support/clock.js';
import { MemoryNetwork } from './memory-socket.js';

export interface MemoryEnvironment extends Environment {
  readonly clock: ManualClock;
  readonly network: MemoryNetwork;
}

/** Nothing of the machine: a clock that stands still, sockets in memory, random bytes that are always the same. */
export function memoryEnvironment(): MemoryEnvironment {
  const clock = new ManualClock();
  const network = new MemoryNetwork();
  return { ...systemEnvironment({ log: silentLogger, random: seededRandom(1) }), clock, network };
}
