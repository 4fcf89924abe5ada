import { Command } from 'commander';
import { within } from '../../base/environment/clock.js';
import { ConfigError, DiskError } from '../../base/errors.js';
import { CLIENT_SOCKET_PATH_MAX_BYTES, NODE_CLOSE_TIMEOUT_MS } from '../../base/limits.js';
import type { CommandContext } from '../../command/context.js';
import { CommandFailure, EXIT_WRONG_USAGE, wrongUsage } from '../../command/failure.js';
import { jsonOption } from '../../command/options.js';
import type { MeshCacheConfig } from '../../config.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { systemEnvironment } from '../../system/system-environment.js';
import {
  addClientSocketOptions,
  type ClientSocketOption,
  isSocketPath,
  withClientSocketOption,
} from '../settings/client-socket.js';
import {
  addConfigurationOptions,
  CONFIGURATION_HELP,
  type Configuration,
  type ConfigurationOptions,
  parseConfiguration,
  readConfiguration,
  withOrigin,
} from '../settings/configuration.js';
import { metricsUrl } from '../settings/metrics-url.js';
import { freeClientSocket } from './free-client-socket.js';

export interface NodeOptions extends ConfigurationOptions {
  readonly json: boolean;
  readonly clientSocket: ClientSocketOption;
}

/**
 * Runs one node until the signal of `context` is aborted; then the node leaves the cluster in order. Throws
 * `ConfigError` for a configuration that cannot be used, and {@link CommandFailure}.
 */
export async function runNode(options: NodeOptions, context: CommandContext): Promise<void> {
  // A closed terminal does not make a node leave the cluster.
  process.on('SIGHUP', () => {});
  context.outliveReader();
  const configuration = await withClientSocket(await readConfiguration(options), options.clientSocket);
  for (const warning of configuration.warnings) context.warn(warning);
  if (configuration.mapping.discovery_addr === undefined) {
    throw wrongUsage(
      '--discovery-addr is missing; give it here, as MESHCACHE_DISCOVERY_ADDR in the environment, or as discovery_addr in the file of --config',
    );
  }
  const config = parseConfiguration(configuration);
  const starting = createStore(configuration, config);
  const store = await Promise.race([starting, aborted(context.signal)]);
  if (store !== undefined && config.waitForDirectory) {
    await Promise.race([store.runtime.waitForDirectory(), aborted(context.signal)]);
  }
  if (store !== undefined && !context.signal.aborted) {
    context.print(readyLine(store, config, options.json));
    await Promise.race([aborted(context.signal), store.drained]);
  }
  const closed = starting.then((started) => started.close());
  if (await within(context.clock, NODE_CLOSE_TIMEOUT_MS, closed)) return;
  throw new CommandFailure(`the node did not close within ${NODE_CLOSE_TIMEOUT_MS / 1000} s; its process is ended`);
}

export function nodeCommand(context: CommandContext): Command {
  return addClientSocketOptions(addConfigurationOptions(new Command('node')))
    .description('run one node until SIGTERM or SIGINT')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache node --discovery-addr 10.0.0.1:31990 --pool 64gb
  meshcache node --discovery-addr 10.0.0.1:31990 --disk-path /mnt/nvme/meshcache --disk-size 500gb
  meshcache node --config node.json -o eviction_policy=s3fifo -o verify_reads=true
  meshcache node --config node.json --client-socket /run/meshcache/node.sock -o client_socket_mode=0660 -o client_socket_group=llm
  MESHCACHE_DISCOVERY_ADDR=10.0.0.1:31990 meshcache node
${CONFIGURATION_HELP}

Processes of this host attach to the client socket and share pages with the whole cluster. By default it is
$XDG_RUNTIME_DIR/meshcache/node.sock; without that variable /run/meshcache/node.sock for root, /tmp/meshcache-<user id>/node.sock
for others; node-2.sock for a second node, and so on. Only the user of the node can connect, unless client_socket_mode and
client_socket_group let others in.

Prints one line when the node is ready. On SIGTERM it leaves the cluster, writes what waits for the disk, and ends with status 0
within 5 seconds; a second one ends it at once. Ends with status 0, too, when it has been drained: \`meshcache drain\`.
Ends with status 2 when the configuration is wrong or cannot be had on this machine, with 1 for other failures.
\`meshcache doctor\` with the same options says what is wrong with them.`,
    )
    .action((options: NodeOptions) => runNode(options, context));
}

/** Adds a client socket to the configuration: the configured one, or a free one in the run-time folder. */
async function withClientSocket(given: Configuration, option: ClientSocketOption): Promise<Configuration> {
  const configuration = withClientSocketOption(given, option);
  const { mapping, warnings } = configuration;
  if (mapping.client_socket !== undefined) return configuration;
  const free = await freeClientSocket(systemEnvironment());
  if (free.path !== undefined && isSocketPath(free.path)) {
    return { ...configuration, mapping: { ...mapping, client_socket: free.path } };
  }
  const reason =
    free.path === undefined ? free.reason : `${free.path} is longer than ${CLIENT_SOCKET_PATH_MAX_BYTES} bytes`;
  return {
    ...configuration,
    warnings: [...warnings, `there is no client socket: ${reason}; --client-socket says where to have one`],
  };
}

async function createStore(configuration: Configuration, config: MeshCacheConfig): Promise<MeshCacheStore> {
  try {
    return await MeshCacheStore.create({
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      // The wait for the directory happens above, where a signal can end it.
      extraConfig: { ...configuration.mapping, wait_for_directory: false },
    });
  } catch (error) {
    // A running node goes on without a disk that fails; this one could not be used from the start.
    if (error instanceof DiskError) throw new CommandFailure(error.message, EXIT_WRONG_USAGE, { cause: error });
    throw withOrigin(withPortKey(error, config), configuration);
  }
}

/**
 * Adds the configuration key to an error of a control-plane server, which knows no keys; the port tells which server it
 * was.
 */
function withPortKey(error: unknown, config: MeshCacheConfig): unknown {
  if (!(error instanceof ConfigError) || !error.message.startsWith('cannot listen on ')) return error;
  const { port } = error.cause as { readonly port?: number };
  const isControl = port !== undefined && port === config.controlPort;
  const key = isControl ? 'control_port' : 'discovery_addr';
  const advice = isControl ? 'choose another port, or 0 for any that is free' : 'choose another port, above 1023';
  return new ConfigError(`configuration key "${key}": ${error.message}; ${advice}`, { cause: error });
}

function readyLine(store: MeshCacheStore, config: MeshCacheConfig, json: boolean): string {
  const ready = {
    node_id: store.runtime.nodeId,
    pid: process.pid,
    discovery_addr: config.discoveryAddr,
    data_endpoint: store.runtime.localRdmaEndpoint,
    metrics_endpoint: store.metricsEndpoint,
    client_socket: store.clientSocket,
    is_meta: store.runtime.isMeta,
    pool_bytes: store.stats().poolCapacityBytes,
    disk_bytes: store.stats().disk?.capacityBytes ?? 0,
  };
  if (json) return JSON.stringify(ready);
  const url = metricsUrl(ready.metrics_endpoint);
  const dashboard = url === undefined ? '' : `, ${config.metricsDashboard ? 'dashboard' : 'metrics server'} at ${url}`;
  const clients = ready.client_socket === '' ? '' : `, clients at ${ready.client_socket}`;
  return `node ${ready.node_id} (process ${ready.pid}) is ready: data at ${ready.data_endpoint}, discovery at ${ready.discovery_addr}${clients}${dashboard}`;
}

function aborted(signal: AbortSignal): Promise<undefined> {
  if (signal.aborted) return Promise.resolve(undefined);
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(undefined), { once: true }));
}
