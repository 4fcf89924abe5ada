import { statfsSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import { isOverdue } from '../../base/environment/files.js';
import { silentLogger } from '../../base/environment/log.js';
import { formatSize } from '../../base/sizes.js';
import { type CommandContext, CommandFailure, EXIT_FAILURE, printResult } from '../../command/context.js';
import { jsonOption } from '../../command/options.js';
import type { Paint } from '../../command/terminal.js';
import type { MeshCacheConfig } from '../../config.js';
import { ConsistentHashRing, PoolAllocator } from '../../core/index.js';
import { loadNative } from '../../native/addon/loader.js';
import { systemRdmaHost } from '../../native/devices/rdma-devices.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { INDEX_FILE, PAGES_FILE } from '../../node/warm/pool-folder.js';
import { poolIndexBytes, readState } from '../../pool/kept/cells.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { fileSystemOf, systemFiles } from '../../system/files/system-files.js';
import { ownMemory } from '../../system/memory-limit.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { systemRandom } from '../../system/system-random.js';
import { PageContent } from '../cluster/page-content.js';
import {
  addClientSocketOptions,
  addConfigurationOptions,
  type ClientSocketOption,
  CONFIGURATION_HELP,
  type Configuration,
  type ConfigurationOptions,
  readConfiguration,
  withClientSocketOption,
} from '../settings/configuration.js';
import { checkClientMemory, checkClientSocket, processLimit } from './clients.js';
import { checkConfiguration, checkMetrics, checkOwnAddress, checkPool } from './configuration.js';
import { discoveryChecks } from './discovery.js';
import { checkDisk } from './disk.js';
import { checkRedis } from './doors.js';
import { type Check, countFindings, type Finding, type FindingCounts, STATE_TONES, summaryOf } from './finding.js';
import { checkNuma } from './numa.js';
import { checkObjectStore } from './object-store.js';
import { checkAddon, checkHugePages, checkLockedMemory, checkRdma, checkRdmaTrip, checkTransport } from './rdma.js';

/** Names of in-memory file systems by their magic numbers of statfs(2). */
const IN_MEMORY: ReadonlyMap<number, string> = new Map([
  [0x01021994, 'tmpfs'],
  [0x958458f6, 'hugetlbfs'],
]);

const HEADER_BYTES = 128;

const NODE_MIN = [20, 19] as const;
const FREE_MEMORY_MIN_BYTES = 2 * 2 ** 30;
const OPEN_FILES_MIN_COUNT = 4096;
const TRIP_PAGE_BYTES = 64 * 2 ** 10;
const TRIP_POOL_BYTES = 2 ** 20;
/** Earliest plausible year; a clock that shows an earlier one is wrong. */
const CLOCK_MIN_YEAR = 2025;
/** A key in the form that the page content needs. */
const TRIP_KEY = '5d0c70e5'.repeat(8);

interface DoctorOptions {
  /** Configuration of the node to be run; settings that are not given are not checked. */
  readonly configuration: Configuration;
  /** Called with the subject of each check before it begins. */
  readonly onCheck?: (subject: string) => void;
  /** Whether to leave out what does not concern RDMA. */
  readonly isRdmaOnly?: boolean;
}

/** Checks that say whether a node would use RDMA. */
const RDMA_SUBJECTS: readonly string[] = [
  'native addon',
  'RDMA',
  'RDMA trip',
  'locked memory',
  'configuration',
  'transport',
];

/** Checks this machine from a node's point of view. A check that throws becomes a problem. */
export async function examine({
  configuration,
  onCheck = () => {},
  isRdmaOnly = false,
}: DoctorOptions): Promise<Finding[]> {
  const checked = checkConfiguration(configuration);
  const all = [...machineChecks(configuration, checked.config), ...nodeChecks(configuration, checked)];
  const checks = isRdmaOnly ? all.filter(([subject]) => RDMA_SUBJECTS.includes(subject)) : all;
  const findings: Finding[] = [];
  for (const [subject, check] of checks) {
    onCheck(subject);
    try {
      findings.push(...[await check()].flat());
    } catch (error) {
      findings.push({ subject, state: 'problem', detail: (error as Error).message });
    }
  }
  return findings;
}

function machineChecks({ mapping }: Configuration, config: MeshCacheConfig | undefined): [string, Check][] {
  return [
    ['Node.js', checkNodeVersion],
    ['WASM core', checkCore],
    ['native addon', () => checkAddon(loadNative())],
    ...rdmaChecks(mapping.protocol !== 'tcp', config),
    ['huge pages', () => checkHugePages()],
    ['NUMA', () => checkNuma()],
    ['open files', checkOpenFiles],
    ['memory', checkFreeMemory],
    ['/dev/shm', checkSharedMemory],
    ['clock', checkClock],
    ['loopback', checkLoopback],
    ['one-page trip', checkPageTrip],
  ];
}

function rdmaChecks(isWanted: boolean, config: MeshCacheConfig | undefined): [string, Check][] {
  if (!isWanted) return [['RDMA', () => ({ subject: 'RDMA', state: 'n/a', detail: 'not wanted: protocol is tcp' })]];
  return [
    ['RDMA', () => checkRdma(systemRdmaHost)],
    ['RDMA trip', () => checkRdmaTrip(systemRdmaHost, config)],
    ['locked memory', () => checkLockedMemory(systemRdmaHost)],
  ];
}

/** Checks of the configuration. If it is rejected, only discovery is checked as well. */
function nodeChecks(
  configuration: Configuration,
  { config, findings }: ReturnType<typeof checkConfiguration>,
): [string, Check][] {
  const checks: [string, Check][] = [['configuration', () => [...findings]]];
  if (config === undefined) {
    if (configuration.mapping.discovery_addr === undefined) return checks;
    return [...checks, ...discoveryChecks(configuration)];
  }
  const { mapping, origins } = configuration;
  // If only a disk folder was given, nothing else is known about the node.
  const isNode = [...origins.values()].some((origin) => origin !== '--disk-path' && origin !== '--disk-size');
  if (isNode) {
    const isWanted = mapping.client_socket !== null;
    const isAskedFor = ['protocol', 'device_name', 'device_names'].some((key) => mapping[key] !== undefined);
    checks.push(
      ['own address', () => checkOwnAddress(config)],
      ['metrics', () => checkMetrics(config)],
      ['pool', () => checkPool(config)],
      ['transport', () => checkTransport(config, { isAskedFor })],
      ['client socket', () => checkClientSocket(config, isWanted)],
      ['Redis clients', () => checkRedis(config)],
    );
    if (isWanted) {
      const parts = { native: loadNative(), host: systemRdmaHost };
      checks.push(['client memory', () => checkClientMemory(config, parts)]);
    }
  }
  const { poolPath, globalSegmentSize } = config;
  if (poolPath !== undefined) checks.push(['kept pool', () => checkPoolFolder(poolPath, globalSegmentSize)]);
  if (config.diskEnabled) {
    const { diskPath, diskSize, diskIndexSize = 0 } = config;
    if (diskIndexSize > diskSize / 2) checks.push(['disk index', () => largeIndex(diskIndexSize, diskSize)]);
    const wanted = mapping.disk_size === undefined && !isNode ? undefined : diskSize;
    checks.push(['disk', () => checkDisk(diskPath as string, wanted)]);
  }
  if (config.objectStore !== undefined)
    checks.push(['object store', () => checkObjectStore(config, systemEnvironment())]);
  return [...checks, ...discoveryChecks(configuration)];
}

function largeIndex(indexBytes: number, diskBytes: number): Finding {
  const detail = `disk_index_size ${formatSize(indexBytes)} is more than half of disk_size ${formatSize(diskBytes)}`;
  return { subject: 'disk index', state: 'problem', detail, advice: 'make it smaller, or leave it out' };
}

export function doctorCommand(context: CommandContext): Command {
  return addClientSocketOptions(addConfigurationOptions(new Command('doctor')))
    .description('check what works on this machine, and why the rest does not')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache doctor
  meshcache doctor --discovery-addr 10.0.0.1:31990
  meshcache doctor --disk-path /mnt/nvme/meshcache --disk-size 500gb
  meshcache doctor --config node.json -o device_name=mlx5_0

With the options of \`meshcache node\` it looks at what that node would find: address, ports, pool, transport,
client socket, disk, object store, discovery.
${CONFIGURATION_HELP}

A check of something that this machine or its node does without has the state n/a.
Ends with status 1 when there is a problem; warnings do not count.`,
    )
    .action(async (options: DoctorCommandOptions) => {
      const progress = context.progress();
      const onCheck = (subject: string): void => progress.update(`checking: ${subject}`);
      const findings = await examineOptions(options, onCheck).finally(() => progress.end());
      const result = { summary: countFindings(findings), findings };
      printResult(context, result, { json: options.json, asText: (shown) => formatResult(shown, context.paint) });
      if (findings.some((finding) => finding.state === 'problem')) context.setExitStatus(EXIT_FAILURE);
    });
}

interface DoctorResult {
  readonly summary: FindingCounts;
  readonly findings: readonly Finding[];
}

interface DoctorCommandOptions extends ConfigurationOptions {
  readonly json: boolean;
  readonly clientSocket: ClientSocketOption;
}

/** Checks the machine even if the configuration file cannot be read, which becomes a finding. */
async function examineOptions(options: DoctorCommandOptions, onCheck: (subject: string) => void): Promise<Finding[]> {
  const read = async (given: ConfigurationOptions): Promise<Configuration> =>
    withClientSocketOption(await readConfiguration(given), options.clientSocket);
  try {
    return await examine({ configuration: await read(options), onCheck });
  } catch (error) {
    if (!(error instanceof CommandFailure) || options.config === undefined) throw error;
    const { config: _config, ...others } = options;
    const unreadable: Finding = { subject: 'configuration', state: 'problem', detail: error.message };
    return [...(await examine({ configuration: await read(others), onCheck })), unreadable];
  }
}

function formatResult({ summary, findings }: DoctorResult, paint: Paint): string {
  const width = Math.max(...findings.map((finding) => finding.subject.length));
  const lines = findings.map(({ subject, state, detail, advice }) => {
    const line = `${paint(STATE_TONES[state], state.padEnd(7))}  ${subject.padEnd(width)}  ${detail}`;
    return advice === undefined ? line : `${line}\n${' '.repeat(width + 11)}-> ${advice}`;
  });
  const gravest = summary.problems > 0 ? 'bad' : summary.warnings > 0 ? 'warning' : 'good';
  return [...lines, '', paint(gravest, summaryOf(summary))].join('\n');
}

function checkNodeVersion(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isEnough = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  const detail = `${process.version} on ${process.platform} ${process.arch}`;
  if (isEnough) return { subject: 'Node.js', state: 'ok', detail };
  return { subject: 'Node.js', state: 'problem', detail, advice: `install Node.js ${NODE_MIN.join('.')} or later` };
}

/** Checks a ring and a pool of the WASM module: every node owns keys, and a page is found where it was placed. */
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
  if (limit === undefined) return { subject: 'open files', state: 'n/a', detail: 'no limit known on this system' };
  const detail = limit === Number.POSITIVE_INFINITY ? 'unlimited' : `${limit} at most`;
  if (limit >= OPEN_FILES_MIN_COUNT) return { subject: 'open files', state: 'ok', detail };
  const advice = `raise it for clusters of more than ${Math.floor(limit / 8)} nodes: ulimit -n ${OPEN_FILES_MIN_COUNT}`;
  return { subject: 'open files', state: 'warning', detail, advice };
}

function checkFreeMemory(): Finding {
  const { totalBytes, freeBytes } = ownMemory();
  const detail = `${formatSize(freeBytes)} free of ${formatSize(totalBytes)}`;
  if (freeBytes >= FREE_MEMORY_MIN_BYTES) return { subject: 'memory', state: 'ok', detail };
  return { subject: 'memory', state: 'warning', detail, advice: 'give nodes a small pool: global_segment_size' };
}

function checkSharedMemory(): Finding {
  try {
    const { bavail, bsize } = statfsSync('/dev/shm');
    return { subject: '/dev/shm', state: 'ok', detail: `${formatSize(bavail * bsize)} free` };
  } catch {
    return { subject: '/dev/shm', state: 'n/a', detail: 'none on this system; this version does not need it' };
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

/** Starts two nodes in this process: one sets a page, the other reads it over the network. */
async function checkPageTrip(): Promise<Finding> {
  const discoveryAddr = `${LOOPBACK}:${await findFreePort(systemRandom)}`;
  // Without a secret, a machine with RDMA would be refused: its device can be reached from other machines.
  const secret = Array.from({ length: 4 }, () => systemRandom.u32().toString(16)).join('-');
  const stores: MeshCacheStore[] = [];
  try {
    for (const node of ['a', 'b']) stores.push(await tripStore({ discoveryAddr, secret, node }));
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

function tripStore({ discoveryAddr, secret, node }: Readonly<Record<string, string>>): Promise<MeshCacheStore> {
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
        node_id: `doctor-${node}`,
        cluster_secret: secret,
        global_segment_size: TRIP_POOL_BYTES,
        heartbeat_interval: 0.1,
        member_ttl: 2,
        metrics_enabled: false,
      },
    },
    { log: silentLogger },
  );
}

/** Retries the read until the nodes see each other; false after ten seconds. */
async function readSoon(reader: MeshCacheStore, page: Uint8Array): Promise<boolean> {
  const untilMs = performance.now() + 10_000;
  while (performance.now() < untilMs) {
    if (await reader.get(TRIP_KEY, page)) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

/**
 * Checks the wall clock, from which a node's incarnation is derived: if it goes back between two starts, the later
 * start looks like the earlier one.
 */
function checkClock(): Finding {
  const subject = 'clock';
  const now = new Date();
  if (now.getUTCFullYear() >= CLOCK_MIN_YEAR) return { subject, state: 'ok', detail: now.toISOString() };
  const advice =
    'set it, and keep it right by NTP: a restarted node is told from its former self by the time of its start';
  return { subject, state: 'problem', detail: `this machine has ${now.toISOString()}`, advice };
}

/** Checks whether the folder `path` can keep a pool of this size across restarts of its node. Changes nothing. */
async function checkPoolFolder(path: string, poolBytes: number): Promise<Finding[]> {
  const subject = 'pool folder';
  const { addon, reason } = loadNative();
  if (addon === null) {
    const advice = 'build the addon, or leave pool_path out: a node with it does not start';
    return [{ subject, state: 'problem', detail: `needs the native addon: ${reason}`, advice }];
  }
  const wanted = resolve(path);
  return checkFolder(wanted, poolBytes).catch((error: Error) => {
    const advice = isOverdue(error)
      ? 'look at the file system, or set another pool_path'
      : 'let the user of the node use the folder, or set another pool_path';
    return [{ subject, state: 'problem', detail: `${wanted}: ${error.message}`, advice }];
  });
}

async function checkFolder(wanted: string, poolBytes: number): Promise<Finding[]> {
  const subject = 'pool folder';
  const folder = await nearestFolder(wanted);
  const { type, blocks, freeBytes: leftBytes } = await fileSystemOf(folder);
  const fileSystem = IN_MEMORY.get(type >>> 0);
  if (fileSystem === undefined) {
    const detail = `${folder} is on a file system of type 0x${(type >>> 0).toString(16)}, which is not in memory`;
    const advice = 'set pool_path to a folder on tmpfs, such as /dev/shm/meshcache, or on hugetlbfs';
    return [{ subject, state: 'problem', detail, advice }];
  }
  const there = folder === wanted ? '' : `${wanted} is not there yet; `;
  const findings: Finding[] = [{ subject, state: 'ok', detail: `${there}${folder} is on ${fileSystem}` }];
  const neededBytes = poolBytes + poolIndexBytes(poolBytes);
  const ownBytes = (await bytesOf(join(wanted, PAGES_FILE))) + (await bytesOf(join(wanted, INDEX_FILE)));
  // A file system without a size limit reports 0 blocks.
  const freeBytes = blocks === 0 ? Number.POSITIVE_INFINITY : leftBytes;
  const free = blocks === 0 ? 'no limit' : `${formatSize(freeBytes)} free`;
  const own = ownBytes === 0 ? '' : `, and ${formatSize(ownBytes)} taken by the pool itself`;
  const detail = `${free}${own}; ${formatSize(neededBytes)} wanted with the index`;
  const isEnough = freeBytes + ownBytes >= neededBytes;
  const advice = 'make the file system larger (mount -o remount,size=…), or global_segment_size smaller';
  findings.push({ subject: 'pool space', detail, ...(isEnough ? { state: 'ok' } : { state: 'problem', advice }) });
  findings.push(await checkContents(wanted));
  return findings;
}

async function checkContents(folder: string): Promise<Finding> {
  const subject = 'kept pool';
  const state = await stateOf(join(folder, INDEX_FILE));
  if (state === 'ours') return { subject, state: 'ok', detail: 'a node finds its pages again' };
  if (state === 'empty') return { subject, state: 'ok', detail: 'none yet' };
  if (state === 'foreign') {
    const advice = 'choose another folder, or move the file away: a node does not touch what is not its own';
    return { subject, state: 'problem', detail: `${join(folder, INDEX_FILE)} is no index of a pool`, advice };
  }
  const advice = 'nothing: a node with this version starts with an empty pool';
  return { subject, state: 'warning', detail: 'its index is damaged or of another version', advice };
}

async function stateOf(path: string): Promise<ReturnType<typeof readState>> {
  const bytes = new Uint8Array(HEADER_BYTES);
  try {
    const file = await systemFiles.open(path);
    try {
      await file.read([bytes], 0);
    } finally {
      await file.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return readState(bytes);
}

/** The folder itself, or the nearest existing one above it. */
async function nearestFolder(wanted: string): Promise<string> {
  for (let path = wanted; ; path = dirname(path)) {
    const isThere = await systemFiles.status(path).then(
      ({ isDirectory }) => isDirectory,
      (error: unknown) => {
        if (isOverdue(error)) throw error;
        return false;
      },
    );
    if (isThere || dirname(path) === path) return path;
  }
}

async function bytesOf(path: string): Promise<number> {
  return systemFiles.status(path).then(
    ({ allocatedBytes }) => allocatedBytes,
    () => 0,
  );
}
