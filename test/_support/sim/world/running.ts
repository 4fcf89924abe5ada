import type { ExecutionContext } from 'ava';
import { World, type WorldOptions } from '../../../../src/sim/world/world.js';

/** A world that runs as long as its test, whatever the test itself waits for. Only one at a time. */
export function runningWorld(t: ExecutionContext, options: Partial<WorldOptions> = {}): World {
  const world = new World({ seed: 1, ...options });
  let isOver = false;
  const running = (async () => {
    while (!isOver) {
      await world.run({ until: () => isOver });
      await new Promise((resolve) => setImmediate(resolve));
    }
    world.close();
  })();
  t.teardown(() => {
    isOver = true;
    return running;
  });
  return world;
}
