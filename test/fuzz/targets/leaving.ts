import { silentLogger } from '../../../src/base/environment/log.js';
import { COPY_REQUEST_MAX_KEYS, DRAIN_LINGER_MAX_MS, DRAIN_TIMEOUT_MAX_MS } from '../../../src/base/limits.js';
import { keyFields } from '../../../src/directory/messages/wire.js';
import { DRAIN_METHOD, type DrainProgress } from '../../../src/node/leaving/drain.js';
import { Handovers } from '../../../src/node/leaving/handovers.js';
import { leavingOf } from '../../../src/node/store-leaving.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { ManualClock } from '../../_support/clock.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { turn } from '../memory-socket.js';
import { hexFields, receivedValue, valueInput } from '../values.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const KEYS = ['page-1', 'page-2', 'page-3'];
const CALLS_MAX_COUNT = 12;
/** Turns of the event loop within which a node that is drained has nothing left to do but wait. */
const TURNS = 4;

/** A node that can be drained, with everything around it left out. */
class LeavingNode {
  readonly handlers = new Handlers();
  readonly clock = new ManualClock();
  readonly copied: (readonly string[])[] = [];
  stops = 0;
  departures = 0;
  isDrained = false;

  constructor() {
    const handovers = new Handovers({ rpc: {} as RpcClient, endpointOf: () => ENDPOINT });
    const runtime = {
      nodeId: 'me',
      config: { heartbeatInterval: 2 },
      handovers,
      members: () => new Map([['me', {}]]),
      storageNodes: () => [],
      leave: async () => void this.departures++,
    };
    const copy = async (keys: readonly string[]) => {
      this.copied.push(keys);
      return new Uint8Array(keys.length).fill(1);
    };
    const { drain, start, takeOver } = leavingOf({
      runtime,
      pages: {
        statements: { locationsOf: (keys: readonly string[]) => keys.map(() => ({ length: 9 })) },
        stopPublishing: () => this.stops++,
      },
      copies: { copy },
      wanted: { keys: () => KEYS, read() {} },
      disk: null,
      placing: { placements: null, taken: null },
      env: { ...systemEnvironment({ log: silentLogger }), clock: this.clock },
    } as never);
    this.handlers.handle(DRAIN_METHOD, start);
    handovers.handle(this.handlers.asServer(), takeOver);
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
  what: 'orders to drain a node, and requests to copy pages of one that is drained',
  form: 'value',
  tokens: ['00000000', '"timeout_ms":', '{"toString":1}', '-1', '3600000', '"pool.copy"', '"node.drain"'].map((text) =>
    Buffer.from(text),
  ),
  seeds: () => {
    const copy = ['pool.copy', hexFields(keyFields(KEYS))];
    return [
      valueInput([copy, ['node.drain', { timeout_ms: 1000 }], copy, 500, ['node.drain', {}]] as never),
      valueInput([['node.drain', { timeout_ms: null }], 40_000]),
      valueInput([['node.drain', { timeout_ms: DRAIN_TIMEOUT_MAX_MS + 1 }], copy] as never),
      ...[COPY_REQUEST_MAX_KEYS, COPY_REQUEST_MAX_KEYS + 1].map((count) =>
        valueInput([['pool.copy', hexFields(keyFields(new Array<string>(count).fill('')))]] as never),
      ),
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
      const copies = node.copied.length;
      const answer = await node.handlers.call(method, params);
      if (method === 'node.drain' && answer !== undefined) {
        isDraining = true;
        const { wanted_pages, handed_pages, left_pages } = answer.value as DrainProgress;
        check(wanted_pages === handed_pages + left_pages, `${handed_pages} + ${left_pages} of ${wanted_pages} pages`);
      }
      check(node.stops === Number(isDraining), 'refused, and yet drained; or the other way round');
      const isCopied = method === 'pool.copy' && answer !== undefined && !isDraining;
      check(node.copied.length === copies + Number(isCopied), 'copied what was refused, or while it is drained');
      if (method === 'pool.copy' && answer !== undefined) checkCopied(answer.value, isDraining);
    }
    for (const keys of node.copied) check(keys.length <= COPY_REQUEST_MAX_KEYS, `${keys.length} keys`);
    await node.wait(DRAIN_TIMEOUT_MAX_MS);
    await node.wait(DRAIN_LINGER_MAX_MS);
    check(node.isDrained === isDraining && node.departures === Number(isDraining), 'drained and still there');
    check(node.clock.pendingCount === 0, 'a timer of a node that has left');
  },
};

function checkCopied(value: unknown, isDraining: boolean): void {
  const { copied } = value as { copied: Uint8Array };
  check(
    copied.every((flag) => flag === Number(!isDraining)),
    'a page that nobody has copied',
  );
}

/** What a node answers to the request to copy three pages. */
export const copyAnswers: Fuzzer = {
  name: 'copy-answers',
  what: 'answers to requests to copy pages: one flag a page, whatever comes',
  form: 'value',
  inputMaxBytes: 512,
  seeds: () => [valueInput({ copied: { $bytes: '010001' } }), valueInput({ copied: { $bytes: '' } }), valueInput(null)],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const rpc = { call: async () => received.value } as unknown as RpcClient;
    const flags = await new Handovers({ rpc, endpointOf: () => ENDPOINT }).ask('other', KEYS, 1_000);
    check(flags instanceof Uint8Array && flags.length === KEYS.length, `${flags.length} flags`);
    const { copied } = (received.value ?? {}) as { copied?: unknown };
    const isAnswer = copied instanceof Uint8Array && copied.length === KEYS.length;
    check(Buffer.compare(flags, isAnswer ? copied : new Uint8Array(KEYS.length)) === 0, 'another answer than came');
  },
};
