import test from 'ava';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { ReasonLog } from '../../src/store/call/call-options.js';
import type { CallerPage } from '../../src/store/call/caller-page.js';
import type { PageStatements } from '../../src/store/ground/page-statements.js';
import { KnownLocations } from '../../src/store/remote/known-locations.js';
import { RemoteReads } from '../../src/store/remote/remote-reads.js';
import { systemClock } from '../../src/system/system-clock.js';
import type { ReadOp, Transport } from '../../src/transport/contract/transport.js';
import { DataLocation, type Tier } from '../../src/types.js';
import { groundOf } from '../_support/store/ground.js';

const PAGE = 64;

interface Node {
  readonly nodeId: string;
  readonly tier?: Tier;
  /**
   * What a read there comes to; `gone`: it has answered that the page is not there; `dead`: false, and it does not
   * answer any more.
   */
  readonly read?: 'ok' | 'gone' | 'unreadable' | 'dead';
  readonly version?: number;
}

/**
 * Reads of one page that these nodes have, the first ones rather than the last, and those that are avoided last of all.
 */
function newReads(t: { teardown(fn: () => void): void }, nodes: readonly Node[], readMs = 0, discard = async () => {}) {
  let nowMs = 0;
  let underWay = 0;
  const events: string[] = [];
  const dead = new Set<string>();
  const locationOf = ({ nodeId, tier = 'memory', version = 0 }: Node) =>
    new DataLocation({
      nodeId,
      rdmaEndpoint: nodeId,
      remoteAddr: 0n,
      rkey: 1,
      length: PAGE,
      checksum: 0,
      tier,
      version,
    });
  const transport = {
    async batchRead(ops: readonly ReadOp[], gone?: Uint8Array) {
      underWay++;
      await systemClock.yield();
      nowMs += readMs;
      underWay--;
      return ops.map(({ remoteEndpoint }, i) => {
        const { read = 'ok' } = nodes.find(({ nodeId }) => nodeId === remoteEndpoint) as Node;
        if (read === 'dead') dead.add(remoteEndpoint);
        if (read === 'gone' && gone !== undefined) gone[i] = 1;
        events.push(`${remoteEndpoint} ${read}`);
        return read === 'ok';
      });
    },
    isReachable: (endpoint: string) => !dead.has(endpoint),
  } as unknown as Transport;
  const clock = { ...systemClock, nowMs: () => nowMs };
  const ground = groundOf({
    ...{ transport, clock },
    config: { verifyReads: true, reuseQuarantineMs: 0, existsMaxAgeMs: 0, locationReuseMs: 0, keepDuplicates: false },
    cluster: {
      dataEndpointOf: ({ nodeId }) => nodeId,
      holders: {
        ask: async (nodeId, { keys }) => {
          events.push(`${nodeId} promotes nothing`);
          return keys.map(() => 'absent' as const);
        },
        release() {},
      },
      drops: {
        isAnnounced: true,
        deleteEverywhere: async () => [],
        dropFrom: (nodeId, _key, voidBelow) => events.push(`${nodeId} is to drop what is below ${voidBelow}`),
      },
    },
    directory: {
      discard: async (_keys, locations) => {
        events.push(`discard ${locations.map(({ nodeId }) => nodeId)}`);
        await discard();
      },
      find: async (_keys, onFound, { avoided = [] } = {}) => {
        if (underWay > 0) throw new Error('looked for while a read may still write into the buffer');
        events.push(`find, not ${avoided.join()}`);
        const wanted = nodes.find(({ nodeId }) => !avoided.includes(nodeId)) ?? nodes[0];
        if (wanted !== undefined) onFound(LocatedPages.of([[0, locationOf(wanted)]]));
      },
    },
  });
  const statements = {
    voidBelow: (_key: string, version: number) => (version < 10 ? 10 : 0),
  } as unknown as PageStatements;
  const knownLocations = new KnownLocations(clock, 0);
  const reads = new RemoteReads(ground, { statements, knownLocations, missLog: new ReasonLog('not read', ground) });
  const region = HostRegion.allocate(PAGE);
  t.teardown(() => region.free());
  const page: CallerPage = { ranges: [{ addr: region.addr, length: PAGE }], views: region.views(), length: PAGE };
  const read = async () => {
    const { reads: read, missed } = await reads.read({ keys: ['key'], pages: [page], wanted: [0] });
    return [...missed.map(({ nodeId }) => `${nodeId} false`), ...read.map(({ nodeId }) => `${nodeId} true`)];
  };
  return { read, events };
}

// Who could not be read was not told when another node could: the directory went on leading readers there.
test('remote reads: a page that could not be read is read from another node, one after the other; both are told of', async (t) => {
  const { read, events } = newReads(t, [{ nodeId: 'a', read: 'unreadable' }, { nodeId: 'b' }]);
  t.deepEqual(await read(), ['a false', 'b true']);
  t.deepEqual(events, ['find, not ', 'a unreadable', 'find, not a', 'b ok']);
});

test('remote reads: disks and dead nodes are tried once, others three times in all', async (t) => {
  const alone = newReads(t, [{ nodeId: 'a', read: 'dead' }]);
  t.deepEqual(await alone.read(), ['a false']);
  t.deepEqual(alone.events, ['find, not ', 'a dead', 'find, not a']);
  const disk = newReads(t, [{ nodeId: 'a', tier: 'disk' }]);
  t.deepEqual(await disk.read(), ['a false']);
  t.deepEqual(disk.events, ['find, not ', 'a promotes nothing', 'find, not a']);
  const stale = newReads(t, [{ nodeId: 'a', read: 'unreadable' }]);
  t.deepEqual(await stale.read(), ['a false']);
  t.is(stale.events.filter((event) => event === 'a unreadable').length, 3);
  const several = newReads(
    t,
    ['a', 'b', 'c', 'd'].map((nodeId) => ({ nodeId, read: 'dead' as const })),
  );
  t.deepEqual(await several.read(), ['a false', 'b false', 'c false']);
});

// Three nodes that each take their deadline made a call take three.
test('remote reads: what has taken long is not looked for anew', async (t) => {
  const stalls = newReads(t, [{ nodeId: 'a', read: 'dead' }, { nodeId: 'b', read: 'dead' }, { nodeId: 'c' }], 4_000);
  t.deepEqual(await stalls.read(), ['a false', 'b false']);
  t.deepEqual(stalls.events, ['find, not ', 'a dead', 'find, not a', 'b dead']);
});

test('remote reads: a location is discarded when its node has answered that the page is not there, and for no other failure', async (t) => {
  // Cause: pages behind a connection that broke, and was whole again when the call looked, were in no directory for
  // minutes.
  const gone = newReads(t, [{ nodeId: 'a', read: 'gone' }, { nodeId: 'b' }]);
  t.deepEqual(await gone.read(), ['a false', 'b true']);
  t.deepEqual(gone.events, ['find, not ', 'a gone', 'discard a', 'find, not a', 'b ok']);
  for (const read of ['unreadable', 'dead'] as const) {
    const { events, ...failing } = newReads(t, [{ nodeId: 'a', read }, { nodeId: 'b' }]);
    t.deepEqual(await failing.read(), ['a false', 'b true']);
    t.false(events.includes('discard a'));
  }
});

test('remote reads: a directory owner that does not hear of a stale location does not hold up the read', async (t) => {
  // Cause: each round waited for all owners, for as long as a call may take.
  const nodes: Node[] = [{ nodeId: 'a', read: 'gone' }, { nodeId: 'b' }];
  const { read } = newReads(t, nodes, 0, () => new Promise(() => {}));
  t.deepEqual(await read(), ['a false', 'b true']);
});

// Cause: a node that had set a page and evicted it read an older one after that, which a node that had been cut off had
// brought back.
test('remote reads: what is older than what the node has set is not read, whoever names it; its node is told to drop it', async (t) => {
  const memory = newReads(t, [
    { nodeId: 'a', version: 9 },
    { nodeId: 'b', version: 10 },
  ]);
  t.deepEqual(await memory.read(), ['a false', 'b true']);
  t.deepEqual(memory.events, ['find, not ', 'a is to drop what is below 10', 'discard a', 'find, not a', 'b ok']);
  const disk = newReads(t, [{ nodeId: 'a', version: 9, tier: 'disk' }]);
  t.deepEqual(await disk.read(), ['a false']);
  t.false(disk.events.includes('a promotes nothing'));
});
