import { DIRECTORY_QUEUE_MAX_MS, RPC_CALL_TIMEOUT_MS } from '../../src/base/limits.js';
import { ConsistentHashRing } from '../../src/core/index.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { DirectoryServer } from '../../src/directory/server.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { RpcServer } from '../../src/rpc/server.js';
import { locationOf } from '../_support/directory/locations.js';
import { simulated } from '../_support/simulated.js';

const ANSWER_AFTER_MS = 1_500;
const CALLS_COUNT = 40;
/** Milliseconds for connecting and the messages themselves. */
const MARGIN_MS = 100;

simulated('directory: calls behind an owner that answers late end in time', async (t, world) => {
  const owner = world.process();
  const { clock } = owner.environment;
  const shard = new DirectoryShard();
  const displacedTold = () => new Promise<void>((resolve) => void clock.after(ANSWER_AFTER_MS, resolve));
  const server = new RpcServer({ host: owner.host.address, env: owner.environment });
  new DirectoryServer({ shard, displacedTold }).attach(server);
  const endpoint = { host: owner.host.address, port: await owner.run(() => server.start()) };
  world.atEnd(owner, () => server.stop());

  const ring = new ConsistentHashRing(16);
  ring.setNodes(['owner']);
  const node = world.process();
  const owed: string[] = [];
  const client = new DirectoryClient(ring, () => endpoint, 1, {
    env: node.environment,
  });
  client.owed.listen((_, keys) => owed.push(...keys));
  world.atEnd(node, () => client.close());

  const startMs = world.nowMs;
  const took: number[] = [];
  const keys = Array.from({ length: CALLS_COUNT }, (_, i) => `key ${i}`);
  const results = await node.run(() =>
    Promise.all(
      keys.map(async (key) => {
        const put = client.put({ [key]: locationOf({ generation: 0 }) });
        // Between two puts, a delete keeps them from sharing a message.
        await client.delete(['another key']);
        const [isTaken] = await put;
        took.push(world.nowMs - startMs);
        return isTaken;
      }),
    ),
  );
  t.true(Math.max(...took) < DIRECTORY_QUEUE_MAX_MS + RPC_CALL_TIMEOUT_MS + MARGIN_MS, `${Math.max(...took)} ms`);
  // The first ones have been sent. The rest is false, and owed to the owner, which does not have it.
  const refused = keys.filter((_, i) => results[i] === false);
  t.true(results[0] === true && refused.length > 0);
  t.deepEqual(
    owed.filter((key) => key !== 'another key'),
    refused,
  );
  t.deepEqual(
    keys.filter((_, i) => results[i]),
    keys.filter((key) => shard.exists([key])[0] === 1),
  );
});
