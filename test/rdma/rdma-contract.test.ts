import test, { type ExecutionContext } from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { formatEndpoint } from '../../src/base/environment/network.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { NativeAddon, RailOptions } from '../../src/native/addon/contract.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { selectRails } from '../../src/native/devices/rail-selection.js';
import { rdmaSupport } from '../../src/native/devices/rdma-support.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { tcpEndpointText } from '../../src/transport/contract/transport.js';
import { RdmaTransport } from '../../src/transport/rdma/rdma-transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { knownHost } from '../_support/rdma/known-host.js';
import { content } from '../_support/support.js';
import { PeerProcess } from '../contract/peer-process.js';
import { transportContract } from '../contract/transport-contract.js';

/** Set where RDMA must work, to the address of a device: there the tests fail rather than skip. */
const wantedHost = process.env.MESHCACHE_TEST_RDMA_HOST;
const support = rdmaSupport({ host: knownHost });

if (!support.usable && wantedHost === undefined) {
  test.skip(`rdma transport: the contract (skipped: RDMA cannot be used here: ${support.reason})`, (t) => t.pass());
} else {
  test('rdma transport: RDMA can be used here', (t) => t.true(support.usable, support.reason));
  if (support.usable) {
    defineContract();
    defineMixed();
  }
}

function defineContract(): void {
  const host = railsOn(0)[0]?.address as string;
  transportContract(test, {
    protocol: 'rdma',
    host,
    peerProcess: (length) => PeerProcess.start('rdma', host, length),
    countsServed: false,
    // Software RDMA on an emulated processor is the slowest that this runs on.
    bytesPerS: 20 * 2 ** 20,
    create: async ({ port = 0, env, retryAfterMs, stallTimeoutMs }) => {
      const tcp = await TcpTransport.create({ host, env, limits: { retryAfterMs, stallTimeoutMs } });
      return new RdmaTransport({
        addon: addonOrThrow(),
        rails: railsOn(port),
        tcp,
        env,
        retryAfterMs,
        engine: { stallTimeoutMs },
      });
    },
  });
}

function defineMixed(): void {
  const env = systemEnvironment({ log: silentLogger });
  const host = railsOn(0)[0]?.address as string;
  const rdmaNode = async (t: ExecutionContext, clusterSecret?: string): Promise<RdmaTransport> => {
    const tcp = await TcpTransport.create({ host, env });
    const secrets = clusterSecret === undefined ? undefined : ClusterSecrets.of([clusterSecret]);
    const made = new RdmaTransport({ addon: addonOrThrow(), rails: railsOn(0), tcp, env: { ...env, secrets } });
    t.teardown(() => made.close());
    return made;
  };
  const regions = (t: ExecutionContext): HostRegion[] => {
    const made = [HostRegion.allocate(100_000), HostRegion.allocate(100_000)];
    t.teardown(() => {
      for (const region of made) region.free();
    });
    made[0]?.bytes().set(content(1, 100_000));
    return made;
  };

  test.serial('rdma transport: nodes with and without RDMA read from each other', async (t) => {
    const withRdma = await rdmaNode(t);
    const without = await TcpTransport.create({ host, env });
    t.teardown(() => without.close());
    for (const [owner, reader] of [
      [withRdma, without],
      [without, withRdma],
    ] as const) {
      const [source, target] = regions(t) as [HostRegion, HostRegion];
      const { rkey } = owner.registerMr(source.addr, source.length);
      const remoteEndpoint = tcpEndpointText(formatEndpoint(owner.localEndpoints().tcp));
      const op = { remoteEndpoint, localAddr: target.addr, remoteAddr: source.addr, rkey, length: source.length };
      t.deepEqual(await reader.batchRead([op]), [true]);
      t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
    }
  });

  test.serial('rdma transport: who does not know the secret reads nothing', async (t) => {
    const owner = await rdmaNode(t, 'a secret');
    const [source, target] = regions(t) as [HostRegion, HostRegion];
    const { rkey } = owner.registerMr(source.addr, source.length);
    const remoteEndpoint = owner.localEndpoint();
    const op = { remoteEndpoint, localAddr: target.addr, remoteAddr: source.addr, rkey, length: source.length };
    for (const [secret, isRead] of [
      [undefined, false],
      ['another secret', false],
      ['a secret', true],
    ] as const) {
      const reader = await rdmaNode(t, secret);
      t.deepEqual(await reader.batchRead([op]), [isRead], String(secret));
    }
    t.true(owner.stats().rdma.refusedConnections >= 2);
    const open = await rdmaNode(t);
    const mr = open.registerMr(source.addr, source.length);
    const reader = await rdmaNode(t, 'a secret');
    const fromOpen = { ...op, remoteEndpoint: open.localEndpoint(), rkey: mr.rkey };
    t.deepEqual(await reader.batchRead([fromOpen]), [false], 'nor is anything read of who does not know it');
  });
}

function addonOrThrow(): NativeAddon {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(reason);
  return addon;
}

function railsOn(port: number): readonly RailOptions[] {
  const wishes = { bindHost: wantedHost, port };
  const { rails, reason } = selectRails(wishes, knownHost.devices(), { nameOf: String, needsBindHost: true });
  if (rails === null) throw new Error(reason);
  return rails;
}
