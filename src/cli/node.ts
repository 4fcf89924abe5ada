import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { ConfigError } from '../base/errors.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { MeshCacheConfig } from '../config.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import type { CommandContext } from './context.js';
import { wrongUsage } from './failure.js';
import { discoveryEndpoints, diskBytes, jsonOption, keyValue, poolBytes } from './options.js';

export interface NodeOptions {
  readonly discoveryAddr?: readonly Endpoint[];
  /** Bytes. */
  readonly pool?: number;
  /** Folder of the disk tier; without it, and without the keys in the file, there is none. */
  readonly diskPath?: string;
  /** Bytes. */
  readonly diskSize?: number;
  /** Path of a JSON file with configuration keys. */
  readonly config?: string;
  readonly option: Readonly<Record<string, string>>;
  readonly json: boolean;
}

/** Runs one node until the signal of `context` is aborted; then it leaves the cluster in order. */
export async function runNode(options: NodeOptions, context: CommandContext): Promise<void> {
  const mapping = await nodeMapping(options);
  checkMapping(mapping);
  // A closed terminal is no reason for a node to leave the cluster.
  process.on('SIGHUP', () => {});
  const store = await MeshCacheStore.create({
    tpRank: 0,
    tpSize: 1,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: false,
    extraConfig: mapping,
  });
  try {
    context.print(readyLine(store, mapping, options.json));
    await aborted(context.signal);
  } finally {
    await store.close();
  }
}

export function nodeCommand(context: CommandContext): Command {
  return new Command('node')
    .description('run one node until SIGTERM or SIGINT')
    .option(
      '--discovery-addr <host:port>',
      'where the cluster is found; several are comma-separated',
      discoveryEndpoints,
    )
    .option('--pool <size>', 'bytes of the pool that this node shares: 4gb', (text) => poolBytes(text))
    .option('--disk-path <folder>', 'turns the disk tier on, in this folder, which one node alone uses')
    .option('--disk-size <size>', 'bytes of the disk tier, everything included: 100gb', (text) => diskBytes(text))
    .option('--config <file>', 'JSON file with configuration keys; options here win over it')
    .option('-o, --option <key=value>', 'one configuration key; may be given several times', keyValue, {})
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache node --discovery-addr 10.0.0.1:31990 --pool 64gb
  meshcache node --discovery-addr 10.0.0.1:31990 --disk-path /mnt/nvme/meshcache --disk-size 500gb
  meshcache node --config node.json -o eviction_policy=s3fifo -o verify_reads=true

Prints one line when the node is ready.`,
    )
    .action((options: NodeOptions) => runNode(options, context));
}

async function nodeMapping(options: NodeOptions): Promise<Record<string, unknown>> {
  const mapping = options.config === undefined ? {} : await readConfigFile(options.config);
  if (options.discoveryAddr !== undefined) {
    mapping.discovery_addr = options.discoveryAddr.map(formatEndpoint).join(',');
  }
  if (options.pool !== undefined) mapping.global_segment_size = options.pool;
  if (options.diskPath !== undefined) Object.assign(mapping, { disk_enabled: true, disk_path: options.diskPath });
  if (options.diskSize !== undefined) mapping.disk_size = options.diskSize;
  Object.assign(mapping, options.option);
  checkDiskOptions(mapping, options);
  if (mapping.discovery_addr === undefined) {
    throw wrongUsage('--discovery-addr is missing; give it here or as discovery_addr in the file of --config');
  }
  return mapping;
}

/** A size alone would be checked and then have no effect. */
function checkDiskOptions(mapping: Readonly<Record<string, unknown>>, { diskSize }: NodeOptions): void {
  const isOn = mapping.disk_enabled !== undefined || mapping.diskEnabled !== undefined;
  if (diskSize === undefined || isOn) return;
  throw wrongUsage('--disk-size is given without --disk-path; give the folder, or leave the size out');
}

async function readConfigFile(path: string): Promise<Record<string, unknown>> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    throw wrongUsage(`--config ${path}: ${(error as Error).message}`);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw wrongUsage(`--config ${path}: must hold a JSON object of configuration keys`);
  }
  return { ...parsed };
}

/** What the configuration refuses is a wrong option here. */
function checkMapping(mapping: Readonly<Record<string, unknown>>): void {
  try {
    MeshCacheConfig.fromExtraConfig(mapping);
  } catch (error) {
    if (error instanceof ConfigError) throw wrongUsage(error.message);
    throw error;
  }
}

function readyLine(store: MeshCacheStore, mapping: Readonly<Record<string, unknown>>, json: boolean): string {
  const ready = {
    node_id: store.runtime.nodeId,
    pid: process.pid,
    discovery_addr: mapping.discovery_addr,
    data_endpoint: store.runtime.localRdmaEndpoint,
    is_meta: store.runtime.isMeta,
    pool_bytes: store.stats().poolCapacityBytes,
    disk_bytes: store.stats().disk?.capacityBytes ?? 0,
  };
  if (json) return JSON.stringify(ready);
  return `node ${ready.node_id} (process ${ready.pid}) is ready: data at ${ready.data_endpoint}, discovery at ${ready.discovery_addr}`;
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
