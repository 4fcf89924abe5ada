import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { PlacementSimulation } from '../../src/core/index.js';
import {
  ConsistentHashRing,
  HostRegion,
  hostPages,
  KeyEncoder,
  MeshCacheClient,
  PoolAllocator,
} from '../../src/index.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';

const NAMESPACE = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
const PLACEMENT = { nodes: 1, poolBytes: 1 << 20, pageBytes: 1 << 10 };

/** Calls with one misspelt name each, and the start of the message. */
const MISSPELT: readonly (readonly [call: () => unknown, message: string])[] = [
  [
    () => HostRegion.allocate(1, { share: true } as never),
    'HostRegion.allocate: unknown option "share"; did you mean "shared"?',
  ],
  [
    () => HostRegion.map(3, 1, { writeable: true } as never),
    'HostRegion.map: unknown option "writeable"; did you mean "writable"?',
  ],
  [() => hostPages({ regions: [] } as never), 'hostPages: unknown option "regions"; did you mean "region"?'],
  [() => wholeNamespace({ model: 'm' } as never), 'namespace: unknown part "model"; did you mean "modelName"?'],
  [
    () => new KeyEncoder({ ...NAMESPACE, modelname: 'm' } as never),
    'namespace: unknown part "modelname"; did you mean "modelName"?',
  ],
  [() => new KeyEncoder(NAMESPACE, { cor: 1 } as never), 'KeyEncoder: unknown option "cor"; did you mean "core"?'],
  [
    () => new ConsistentHashRing(160, { cor: 1 } as never),
    'ConsistentHashRing: unknown option "cor"; did you mean "core"?',
  ],
  [
    () => new PoolAllocator({ capacityBytes: 1024, polcy: 'yield' } as never),
    'PoolAllocator: unknown option "polcy"; did you mean "policy"?',
  ],
  [
    () => new PoolAllocator({ capacityBytes: 1024, tenants: [{ maxByte: 1 } as never] }),
    'PoolAllocator: tenant 1: unknown option "maxByte"; did you mean "maxBytes"?',
  ],
  [
    () => new PlacementSimulation({ ...PLACEMENT, routng: 'prefix' } as never),
    'PlacementSimulation: unknown option "routng"; did you mean "routing"?',
  ],
];

test('misspelt options: what a caller cannot have meant is refused, with the name that is the most like it', (t) => {
  for (const [call, start] of MISSPELT) {
    const { message } = t.throws(call, { instanceOf: ArgumentError });
    t.true(message.startsWith(start), message);
  }
});

test('misspelt options: a client that is told another name for its socket does not attach elsewhere', async (t) => {
  // Cause: the name was not known, so that the client took the default socket, of another node perhaps.
  const connected = MeshCacheClient.connect({ sock: '/run/none.sock' } as never);
  const { message } = await t.throwsAsync(connected, { instanceOf: ArgumentError });
  t.is(
    message,
    'connect: unknown option "sock"; did you mean "socket"? Allowed are socket, namespace, name, timeoutMs, required, mode, token, tokenFile',
  );
});

test('misspelt options: calls of a store and of a client refuse them', async (t) => {
  await using store = await createStore(await freePort());
  await using client = await MeshCacheClient.connect({ socket: '/tmp/no-such-folder/node.sock' });
  const refused = { instanceOf: ArgumentError, message: /: unknown option ".*"; (did you mean ".*"\? A|a)llowed are / };
  for (const each of [store, client]) {
    t.throws(() => each.pageEvents({ from: 'x' } as never), refused);
    t.throws(() => each.pageEvents(null as never), { instanceOf: ArgumentError, message: /must be an object/ });
    const signal = { instanceOf: ArgumentError, message: /signal must be an AbortSignal, got 5/ };
    t.throws(() => each.pageEvents({ signal: 5 } as never), signal);
    await t.throwsAsync(each.get('k', { timeout: 1 } as never), refused);
    await t.throwsAsync(each.set('k', new Uint8Array(1), { expiresIn: 1 } as never), refused);
    await t.throwsAsync(each.pin(['k'], { formMs: 1 } as never), refused);
  }
});
