import { readFileSync, statfsSync } from 'node:fs';
import { createServer } from 'node:net';
import { freemem, totalmem } from 'node:os';
import { Command } from 'commander';
import { silentLogger } from '../base/log.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { systemRandom } from '../base/random.js';
import { formatSize } from '../base/sizes.js';
import { findFreePort, LOOPBACK } from '../bench/free-port.js';
import { ConsistentHashRing, PoolAllocator } from '../core/index.js';
import { loadNative } from '../native/loader.js';
import { systemRdmaHost } from '../native/rdma-host.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { ClusterQuery } from './cluster-query.js';
import { type CommandContext, printResult } from './context.js';
import { checkDisk } from './doctor-disk.js';
import { checkAddon, checkHugePages, checkLockedMemory, checkRdma, checkRdmaTrip } from './doctor-rdma.js';
import { EXIT_FAILURE, wrongUsage } from './failure.js';
import type { Finding } from './finding.js';
import { discoveryEndpoints, diskBytes, jsonOption } from './options.js';
import { PageContent } from './page-content.js';

type Check = () => Finding | Finding[] | Promise<Finding | Finding[]>;

const NODE_MIN = [20, 19] as const;
const FREE_MEMORY_MIN_BYTES = 2 * 2 ** 30;
const OPEN_FILES_MIN_COUNT = 4096;
const TRIP_PAGE_BYTES = 64 * 2 ** 10;
const TRIP_POOL_BYTES = 2 ** 20;
/** A key of the form that the page content needs. */
const TRIP_KEY = '5d0c70e5'.repeat(8);

export interface DoctorOptions {
  /** Masters of a cluster that are to be asked. */
  readonly discoveryAddr?: readonly Endpoint[];
  /** Folder of a disk tier, as it is or as it is going to be. */
  readonly diskPath?: string;
  /** Bytes that the tier is to have. */
  readonly diskSize?: number;
}

/** Looks at this machine from a node's point of view; none of the checks throws. */
export async function examine({ discoveryAddr = [], diskPath, diskSize }: DoctorOptions): Promise<Finding[]> {
  const checks: [string, Check][] = [
    ['Node.js', checkNodeVersion],
    ['WASM core', checkCore],
    ['native addon', () => checkAddon(loadNative())],
    ['RDMA', () => checkRdma(systemRdmaHost)],
    ['RDMA trip', () => checkRdmaTrip(systemRdmaHost)],
    ['locked memory', () => checkLockedMemory(systemRdmaHost)],
    ['huge pages', () => checkHugePages()],
    ['open files', checkOpenFiles],
    ['memory', checkFreeMemory],
    ['/dev/shm', checkSharedMemory],
    ['loopback', checkLoopback],
    ['one-page trip', checkPageTrip],
    ...(diskPath === undefined ? [] : [['disk', () => checkDisk(diskPath, diskSize)] as [string, Check]]),
    ...discoveryAddr.map((endpoint): [string, Check] => ['discovery', () => checkDiscovery(endpoint)]),
  ];
  const findings: Finding[] = [];
  for (const [subject, check] of checks) {
    try {
      findings.push(...[await check()].flat());
    } catch (error) {
      findings.push({ subject, state: 'problem', detail: (error as Error).message });
    }
  }
  return findings;
}

export function doctorCommand(context: CommandContext): Command {
  return new Command('doctor')
    .description('check what works on this machine, and why the rest does not')
    .option('--discovery-addr <host:port>', 'also ask the masters of a cluster', discoveryEndpoints)
    .option('--disk-path <folder>', 'also look at the folder of a disk tier')
    .option('--disk-size <size>', 'what the disk tier is to have there: 100gb', (text) => diskBytes(text))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache doctor
  meshcache doctor --discovery-addr 10.0.0.1:31990
  meshcache doctor --disk-path /mnt/nvme/meshcache --disk-size 500gb

Ends with status 1 when there is a problem; warnings do not count.`,
    )
    .action(async (options: DoctorOptions & { json: boolean }) => {
      if (options.diskSize !== undefined && options.diskPath === undefined) {
        throw wrongUsage('--disk-size is given without --disk-path; give the folder, or leave the size out');
      }
      const findings = await examine(options);
      printResult(context, { findings }, { json: options.json, asText: (result) => formatFindings(result.findings) });
      if (findings.some((finding) => finding.state === 'problem')) context.setExitStatus(EXIT_FAILURE);
    });
}

function formatFindings(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map((finding) => finding.subject.length));
  return findings
    .map(({ subject, state, detail, advice }) => {
      const line = `${state.padEnd(7)}  ${subject.padEnd(width)}  ${detail}`;
      return advice === undefined ? line : `${line}\n${' '.repeat(width + 11)}-> ${advice}`;
    })
    .join('\n');
}

function checkNodeVersion(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isEnough = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  const detail = `${process.version} on ${process.platform} ${process.arch}`;
  if (isEnough) return { subject: 'Node.js', state: 'ok', detail };
  return { subject: 'Node.js', state: 'problem', detail, advice: `install Node.js ${NODE_MIN.join('.')} or later` };
}

/** A ring and a pool of the module that this program loaded: every key has an owner, every range comes back. */
function checkCore(): Finding {
  const ring = new ConsistentHashRing(160);
  ring.setNodes(['a', 'b', 'c']);
  const owners = new Set(Array.from({ length: 100 }, (_, i) => ring.getNode(`key ${i}`)));
  const allocator = new PoolAllocator({ capacityBytes: 2 ** 20, quarantineMs: 0 });
  const placed = allocator.publish('a key', 4096, 0);
  const found = allocator.lookup('a key');
  allocator.verify();
  ring.free();
  allocator.free();
  const isRight = owners.size === 3 && placed !== null && found?.offset === placed.offset && found.bytes === 4096;
  if (isRight) return { subject: 'WASM core', state: 'ok', detail: 'loaded; ring and pool pass their self-test' };
  return {
    subject: 'WASM core',
    state: 'problem',
    detail: 'loaded, but the ring or the pool gives wrong answers',
    advice: 'install the package again; its meshcache.wasm does not belong to this version',
  };
}

function checkOpenFiles(): Finding {
  const limit = processLimit('Max open files');
  if (limit === undefined) return { subject: 'open files', state: 'ok', detail: 'no limit known on this system' };
  const detail = limit === Number.POSITIVE_INFINITY ? 'unlimited' : `${limit} at most`;
  if (limit >= OPEN_FILES_MIN_COUNT) return { subject: 'open files', state: 'ok', detail };
  const advice = `raise it for clusters of more than ${Math.floor(limit / 8)} nodes: ulimit -n ${OPEN_FILES_MIN_COUNT}`;
  return { subject: 'open files', state: 'warning', detail, advice };
}

function checkFreeMemory(): Finding {
  const detail = `${formatSize(freemem())} free of ${formatSize(totalmem())}`;
  if (freemem() >= FREE_MEMORY_MIN_BYTES) return { subject: 'memory', state: 'ok', detail };
  return { subject: 'memory', state: 'warning', detail, advice: 'give nodes a small pool: global_segment_size' };
}

function checkSharedMemory(): Finding {
  try {
    const { bavail, bsize } = statfsSync('/dev/shm');
    return { subject: '/dev/shm', state: 'ok', detail: `${formatSize(bavail * bsize)} free` };
  } catch {
    return { subject: '/dev/shm', state: 'ok', detail: 'none on this system; this version does not need it' };
  }
}

async function checkLoopback(): Promise<Finding> {
  const server = createServer();
  const port = await new Promise<number>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: LOOPBACK, port: 0 }, () => resolve((server.address() as { port: number }).port));
  });
  await new Promise((resolve) => server.close(resolve));
  return { subject: 'loopback', state: 'ok', detail: `can listen (tried port ${port})` };
}

/** Two nodes in this process; one sets a page, the other reads it over the network. */
async function checkPageTrip(): Promise<Finding> {
  const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
  const stores: MeshCacheStore[] = [];
  try {
    for (const node of ['a', 'b']) stores.push(await tripStore(discoveryAddr, node));
    const [writer, reader] = stores as [MeshCacheStore, MeshCacheStore];
    const content = new PageContent();
    const page = new Uint8Array(TRIP_PAGE_BYTES);
    content.fill(page, TRIP_KEY);
    if (!(await writer.set(TRIP_KEY, page))) throw new Error('a page could not be set');
    page.fill(0);
    const startedMs = performance.now();
    if (!(await readSoon(reader, page))) throw new Error('a page that one node has set could not be read by another');
    const tookMs = performance.now() - startedMs;
    const wrong = content.wrongBytes(page, TRIP_KEY);
    if (wrong > 0) throw new Error(`a page came with ${wrong} wrong bytes`);
    const protocol = reader.runtime.transport.protocol.toUpperCase();
    const detail = `two nodes, ${formatSize(TRIP_PAGE_BYTES)} over ${protocol}, every byte right, ${tookMs.toFixed(1)} ms`;
    return { subject: 'one-page trip', state: 'ok', detail };
  } finally {
    for (const store of stores.reverse()) await store.close();
  }
}

function tripStore(discoveryAddr: string, nodeId: string): Promise<MeshCacheStore> {
  return MeshCacheStore.create(
    {
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      extraConfig: {
        discovery_addr: discoveryAddr,
        local_hostname: LOOPBACK,
        node_id: `doctor-${nodeId}`,
        global_segment_size: TRIP_POOL_BYTES,
        heartbeat_interval: 0.1,
        member_ttl: 2,
        metrics_enabled: false,
      },
    },
    { log: silentLogger },
  );
}

/** The nodes need a moment to see each other; ten seconds are more than that. */
async function readSoon(reader: MeshCacheStore, page: Uint8Array): Promise<boolean> {
  const untilMs = performance.now() + 10_000;
  while (performance.now() < untilMs) {
    if (await reader.get(TRIP_KEY, page)) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

async function checkDiscovery(endpoint: Endpoint): Promise<Finding> {
  const query = new ClusterQuery();
  try {
    const members = await query.members([endpoint]);
    const detail = `${formatEndpoint(endpoint)} answers and knows ${members.length} nodes`;
    return { subject: 'discovery', state: 'ok', detail };
  } catch (error) {
    const advice = 'is a node running on that host with this discovery_addr, and does a firewall allow the port?';
    return { subject: 'discovery', state: 'problem', detail: (error as Error).message, advice };
  } finally {
    await query.close();
  }
}

/** A soft limit of this process, Linux only; infinity: unlimited. */
function processLimit(name: string): number | undefined {
  let limits: string;
  try {
    limits = readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return undefined;
  }
  const line = limits.split('\n').find((text) => text.startsWith(name));
  const value = line?.slice(name.length).trim().split(/\s+/)[0];
  if (value === undefined) return undefined;
  return value === 'unlimited' ? Number.POSITIVE_INFINITY : Number(value);
}
