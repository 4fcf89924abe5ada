import {
  ArgumentError,
  AuthError,
  type ClientInfo,
  ClosedError,
  type ClusterReport,
  ConfigError,
  ConsistentHashRing,
  createTransport,
  DataLocation,
  DirectoryClient,
  DirectoryServer,
  DiscoveryClient,
  DiscoveryServer,
  DiskError,
  DiskStore,
  EVICTION_POLICIES,
  type HostMemPool,
  type HostPagesOptions,
  HostRegion,
  hostPages,
  KeyEncoder,
  loadCore,
  MeshCacheClient,
  type MeshCacheClientOptions,
  type MeshCacheClientStats,
  MeshCacheConfig,
  MeshCacheError,
  MeshCacheStore,
  Metrics,
  MetricsServer,
  type MissReason,
  NodeInfo,
  type NodeNamespace,
  type NodeReport,
  NodeRuntime,
  type PageHolders,
  PoolAllocator,
  type PoolTransfer,
  ProtocolError,
  PublishedPool,
  RdmaError,
  type ReadOp,
  type ReadOptions,
  type RefusalReason,
  RpcClient,
  RpcServer,
  type StorageConfig,
  StoreNamespace,
  type StoreStats,
  type Transport,
} from 'meshcache';
import { HAS_RDMA, type RdmaSupport, rdmaSupport, TransferEngine } from 'meshcache/native';

const storage: StorageConfig = {
  tpRank: 0,
  tpSize: 1,
  ppRank: 0,
  ppSize: 1,
  isMlaModel: false,
  modelName: 'llama-3-8b',
  extraConfig: { discovery_addr: '127.0.0.1:31990', protocol: 'tcp' },
};

class FrameworkPool implements HostMemPool {
  readonly region = HostRegion.allocate(1 << 20, { hugePages: false });
  readonly pageSize = 1;
  getPageBufferMeta(hostIndices: ArrayLike<number | bigint>): { ptrs: bigint[]; sizes: number[] } {
    const indices: (number | bigint)[] = Array.from(hostIndices);
    return { ptrs: indices.map((index) => this.region.addr + BigInt(index)), sizes: indices.map(() => 4096) };
  }
}

export async function useStore(): Promise<StoreStats> {
  const store: MeshCacheStore = await MeshCacheStore.create(storage);
  await store.registerMemPoolHost(new FrameworkPool());
  await store.registerMemHostPoolV2(new FrameworkPool(), 'extra');
  const keys = ['a', 'b'];
  const set: boolean[] = await store.batchSetV1(keys, [0, 1]);
  const got: boolean[] = await store.batchGetV1(keys, new BigInt64Array(2));
  const prefix: number = await store.batchExists(keys);
  const transfers: PoolTransfer[] = [{ name: 'kv', keys, hostIndices: [0], hitPolicy: 'trailing_pages' }];
  const byPool: Record<string, boolean[]> = {
    ...(await store.batchSetV2(transfers)),
    ...(await store.batchGetV2(transfers)),
  };
  const { kvHitPages, extraPoolHitPages } = await store.batchExistsV2(keys, transfers);
  const whole: Uint8Array | null = await store.get('a');
  const into: boolean = await store.get('a', new Uint8Array(4));
  const at: boolean =
    (await store.get('a', 0n, 4)) && (await store.set('a', 0n, 4)) && (await store.set('a', Buffer.alloc(4)));
  await store.batchSet(keys, [0n], [1]);
  await store.batchGet(keys, [0n], [1]);
  console.log(
    set,
    got,
    prefix,
    byPool,
    kvHitPages,
    extraPoolHitPages,
    whole?.length,
    into,
    at,
    await store.exists('a'),
  );
  const runtime: NodeRuntime = store.runtime;
  console.log(runtime.nodeId, runtime.localRdmaEndpoint, runtime.isMeta, runtime.directory, runtime.transport);
  const stats = store.stats();
  await store.clear();
  await store.close();
  return stats;
}

export async function useOptions(): Promise<void> {
  await using store = await MeshCacheStore.create({
    discoveryAddr: '127.0.0.1:31990',
    protocol: 'tcp',
    globalSegmentSize: '1.5gb',
    modelName: 'llama-3-8b',
  });
  const region = HostRegion.allocate(1 << 20);
  const pages: HostPagesOptions = { region, pageBytes: 4096, pageTokens: 16 };
  await store.registerMemPoolHost(hostPages(pages));
  const options: ReadOptions = { timeoutMs: 50, signal: new AbortController().signal, hint: 'open' };
  const copies: (Uint8Array | null)[] = await store.getMany(['a', 'b'], options);
  const { page, reason } = await store.getDetailed('a', options);
  const why: MissReason | undefined = reason;
  const { isSet, reason: refusal } = await store.setDetailed('a', new Float32Array(4), { timeoutMs: 50 });
  const refused: RefusalReason | undefined = refusal;
  const view: NodeNamespace = store.namespace({ tag: 'weights-1' });
  for await (const key of view.keys({ timeoutMs: 1000 })) console.log(key);
  await store.clear({ timeoutMs: 1000 });
  console.log(copies, page?.length, why, isSet, refused, await store.exists('a', { timeoutMs: 5 }));
}

export async function useClient(store: MeshCacheStore): Promise<MeshCacheClientStats> {
  const options: MeshCacheClientOptions = {
    socket: store.clientSocket,
    namespace: { modelName: 'llama-3-8b', tpRank: 1, tpSize: 2 },
    timeoutMs: 500,
    mode: 'auto',
  };
  await using client = await MeshCacheClient.connect(options);
  for (const namespace of [store, store.namespace({ tag: 'weights-1' }), client] satisfies StoreNamespace[]) {
    await namespace.set('a', Buffer.alloc(4));
  }
  const holders: (PageHolders | null)[] = await client.stat(['a']);
  const names: string[] = store.clients().map(({ name, pid, mode }: ClientInfo) => `${name} ${pid} ${mode}`);
  console.log(await client.ping(), client.isConnected, holders[0]?.holders[0]?.node_id, holders[0]?.length, names);
  console.log(client instanceof StoreNamespace);
  return client.stats();
}

export async function useParts(config: MeshCacheConfig): Promise<void> {
  const runtime = new NodeRuntime(config);
  await runtime.start();
  await runtime.stop();
  const transport: Transport = await createTransport(config);
  const mr = transport.registerMr(0n, 4096);
  const op: ReadOp = {
    remoteEndpoint: transport.localEndpoint(),
    localAddr: 0n,
    remoteAddr: mr.addr,
    rkey: mr.rkey,
    length: 1,
  };
  const done: boolean[] = await transport.batchRead([op]);
  await transport.deregisterMr(mr);
  await transport.close();

  const info = NodeInfo.fromDict(new NodeInfo({ nodeId: 'n', controlHost: '127.0.0.1', controlPort: 1 }).toDict());
  const master = new DiscoveryServer('127.0.0.1', 0);
  const member = new DiscoveryClient(`127.0.0.1:${await master.start()}`, info, {
    onMembers: (members: Map<string, NodeInfo>) => console.log(members.size),
    heartbeatInterval: 2,
  });
  await member.start();
  await member.stop();
  await master.stop();

  const rpc = new RpcServer({ host: '127.0.0.1' });
  new DirectoryServer().attach(rpc);
  rpc.handle('sum', () => ({ sum: 1 }));
  const port = await rpc.start();
  console.log(await new RpcClient().call({ host: '127.0.0.1', port }, 'sum', {}), done);
  const ring = new ConsistentHashRing(160);
  const directory = new DirectoryClient(ring, () => ({ host: '127.0.0.1', port }), 2);
  const location = new DataLocation({ nodeId: 'n', rdmaEndpoint: 'h:1', remoteAddr: 1n, rkey: 1, length: 1 });
  await directory.put(new Map([['key', location]]));
  const found: (DataLocation | null)[] = await directory.get(['key']);
  await directory.delete(['key']);
  console.log(found, await directory.exists(['key']));
}

export async function useStorage(): Promise<void> {
  using region = HostRegion.wrap(new Uint8Array(1 << 20));
  const pool = new PublishedPool(region.addr, region.length, 1, {
    onEvict: (keys: string[]) => console.log(keys),
    policy: 'lru',
  });
  const address: bigint | null = pool.publish('key', region.addr, 1);
  const [remoteAddr, length] = pool.addressOf('key') ?? [0n, 0];
  console.log(
    address,
    remoteAddr,
    length,
    pool.remove('key'),
    pool.has('key'),
    pool.size,
    pool.bytesUsed,
    region.bytes(0, 1),
  );
  const disk = await DiskStore.open('/mnt/pages', 1 << 30, { nodeId: 'n', onEvict: () => {} });
  disk.put('key', new Uint8Array(1));
  await disk.flush();
  const [usedBytes, numKeys] = disk.stats();
  console.log(
    await disk.get('key'),
    await disk.getInto('key', new Uint8Array(1)),
    disk.exists('key'),
    usedBytes,
    numKeys,
  );
  disk.remove('key');
  await disk.close();
  const allocator = new PoolAllocator({ capacityBytes: 1 << 20, policy: EVICTION_POLICIES[0], core: await loadCore() });
  console.log(allocator.publish('key', 1, 0)?.offset, allocator.lookup('key')?.bytes, allocator.remove('key'));
  new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: true }).encode(['key']);
}

export async function useMetrics(): Promise<void> {
  const metrics = new Metrics('n');
  metrics.recordRead(true, 4096, 1e-3, 'remote');
  metrics.recordWrite(4096, 1e-3);
  metrics.setGaugeProvider('meshcache_own', () => 1);
  const text: string = await metrics.renderPrometheus();
  const server = new MetricsServer(metrics, '127.0.0.1', 0, { dashboard: true });
  const answer = (await (await fetch(`http://127.0.0.1:${await server.start()}/api/node`)).json()) as
    | NodeReport
    | ClusterReport;
  console.log(text, answer.node_id);
  await server.stop();
}

export async function useEngine(): Promise<string> {
  const support: RdmaSupport = rdmaSupport();
  if (!HAS_RDMA || !support.usable) return support.reason;
  await using engine = new TransferEngine({
    deviceName: 'mlx5_0',
    ibPort: 1,
    gidIndex: 3,
    bindHost: '0.0.0.0',
    bindPort: 0,
  });
  const { addr, rkey } = engine.registerMr(0n, 4096);
  const request = { remoteNode: engine.localEndpoint(), localAddr: addr, remoteAddr: addr, rkey, length: 1 };
  return String(await engine.batchRead([request]));
}

export function sayWhatFailed(error: unknown): string {
  if (error instanceof RdmaError) return `${error.device} ${error.call} ${error.errno}`;
  for (const kind of [ArgumentError, AuthError, ClosedError, ConfigError, DiskError, ProtocolError]) {
    if (error instanceof kind) return error.message;
  }
  return error instanceof MeshCacheError ? `${error.code} ${error.retryable} ${String(error.cause)}` : String(error);
}

await useParts(new MeshCacheConfig({ discoveryAddr: '127.0.0.1:31990' }));
await useParts(MeshCacheConfig.fromExtraConfig(storage.extraConfig));
