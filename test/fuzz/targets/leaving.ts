import { silentLogger } from '../../../src/base/environment/log.js';
import { DRAIN_LINGER_MAX_MS, DRAIN_TIMEOUT_MAX_MS } from '../../../src/base/limits.js';
import { DRAIN_METHOD, type DrainProgress } from '../../../src/node/leaving/drain.js';
import { leavingOf } from '../../../src/node/store-leaving.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { ManualClock } from '../../_support/clock.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { turn } from '../memory-socket.js';
import { receivedValue, valueInput } from '../values.js';

const KEYS = ['page-1', 'page-2', 'page-3'];
const CALLS_MAX_COUNT = 12;
/** Turns of the event loop within which a node that is drained has nothing left to do but wait. */
const TURNS = 4;

/** A node that can be drained, with everything around it left out. */
class LeavingNode {
  readonly handlers = new Handlers();
  readonly clock = new ManualClock();
  stops = 0;
  refusals = 0;
  departures = 0;
  isDrained = false;

  constructor() {
    const runtime = {
      nodeId: 'me',
      config: { heartbeatInterval: 2 },
      holders: { ask: async () => undefined },
      members: () => new Map([['me', {}]]),
      storageNodes: () => [],
      leave: async () => void this.departures++,
    };
    const { drain, start } = leavingOf({
      runtime,
      pages: {
        statements: {
          locationsOf: (keys: readonly string[]) => keys.map(() => ({ length: 9 })),
          tiersOf: (keys: readonly string[]) => keys.map(() => 'memory'),
        },
        stopPublishing: () => this.stops++,
      },
      held: { stop: () => this.refusals++ },
      wanted: { keys: () => KEYS, read() {} },
      disk: null,
      placements: null,
      env: { ...systemEnvironment({ log: silentLogger }), clock: this.clock },
    } as never);
    this.handlers.handle(DRAIN_METHOD, start);
    void drain.drained.then(() => {
      this.isDrained = true;
    });
  }

  async wait(ms: number): Promise<void> {
    this.clock.advance(ms);
    for (let i = 0; i < TURNS; i++) await turn();
  }
}

/** A list of calls to one node, and of turns of its clock. */
export const leavingCalls: Fuzzer = {
  name: 'leaving-calls',
  what: 'orders to drain a node',
  form: 'value',
  tokens: ['00000000', '"timeout_ms":', '{"toString":1}', '-1', '3600000', '"node.drain"'].map((text) =>
    Buffer.from(text),
  ),
  seeds: () => {
    return [
      valueInput([['node.drain', { timeout_ms: 1000 }], 500, ['node.drain', {}]]),
      valueInput([['node.drain', { timeout_ms: null }], 40_000]),
      valueInput([['node.drain', { timeout_ms: DRAIN_TIMEOUT_MAX_MS + 1 }]]),
    ];
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const node = new LeavingNode();
    let isDraining = false;
    for (const step of received.value.slice(0, CALLS_MAX_COUNT)) {
      if (typeof step === 'number') await node.wait(Math.min(60_000, Math.max(0, step || 0)));
      if (!Array.isArray(step)) continue;
      const [method, params] = step as unknown[];
      const answer = await node.handlers.call(method, params);
      if (method === 'node.drain' && answer !== undefined) {
        isDraining = true;
        const { wanted_pages, handed_pages, left_pages } = answer.value as DrainProgress;
        check(wanted_pages === handed_pages + left_pages, `${handed_pages} + ${left_pages} of ${wanted_pages} pages`);
      }
      check(
        node.stops === Number(isDraining) && node.refusals === node.stops,
        'refused, and yet drained; or the other way round',
      );
    }
    await node.wait(DRAIN_TIMEOUT_MAX_MS);
    await node.wait(DRAIN_LINGER_MAX_MS);
    check(node.isDrained === isDraining && node.departures === Number(isDraining), 'drained and still there');
    check(node.clock.pendingCount === 0, 'a timer of a node that has left');
  },
};
