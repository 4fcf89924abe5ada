import { execFile } from 'node:child_process';
import { accessSync, constants, lstatSync, mkdirSync } from 'node:fs';
import { readFile, realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { type Clock, within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import type { Logger } from '../base/environment/log.js';
import { ConfigError, DiskError } from '../base/errors.js';
import { CLIENT_SOCKET_PATH_MAX_BYTES, NODE_CLOSE_TIMEOUT_MS } from '../base/limits.js';
import { defaultClientSocket, distrustOf, ownRuntimeFolder } from '../clients/socket-path.js';
import { type CommandContext, CommandFailure, EXIT_WRONG_USAGE, wrongUsage } from '../command/context.js';
import { decimalNumber, jsonOption } from '../command/options.js';
import type { MeshCacheConfig } from '../config.js';
import { isAnswering, SocketTakenError } from '../net/local-socket.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { systemEnvironment } from '../system/system-environment.js';
import { defaultLogFormat, defaultLogger, jsonLine } from '../system/system-log.js';
import {
  addClientSocketOptions,
  addConfigurationOptions,
  type ClientSocketOption,
  CONFIGURATION_HELP,
  type Configuration,
  type ConfigurationOptions,
  isSocketPath,
  parseConfiguration,
  readConfiguration,
  withClientSocketOption,
  withOrigin,
} from './settings/configuration.js';
import { metricsUrl } from './settings/endpoints.js';

/** Number of default sockets: how many nodes of one user can run on a host without a configured socket. */
const NODES_MAX_COUNT = 64;

/** Milliseconds between two checks of whether the node has joined. */
const JOIN_POLL_MS = 100;
const STILL_OPEN = `the node did not close within ${NODE_CLOSE_TIMEOUT_MS / 1000} s; its process is ended`;
const WAIT_JOINED_MAX_S = 86_400;

/** How long to wait for the node to join before anything is printed: `true` is forever, a number is in seconds. */
type WaitJoined = true | number;

interface NodeOptions extends ConfigurationOptions {
  readonly json: boolean;
  readonly waitJoined?: WaitJoined;
  readonly clientSocket: ClientSocketOption;
}

interface Serving {
  readonly config: MeshCacheConfig;
  readonly options: NodeOptions;
  readonly context: CommandContext;
  readonly manager: ServiceManager;
  /** Time of `context.clock` at which to give up on a node that has not joined. */
  readonly joinEndMs: number;
}

/**
 * Runs one node until the signal of `context` is aborted; the node then leaves the cluster cleanly. Throws
 * `ConfigError` for an unusable configuration, and {@link CommandFailure}.
 */
async function runNode(options: NodeOptions, context: CommandContext): Promise<void> {
  // A closed terminal does not make a node leave the cluster.
  process.on('SIGHUP', () => {});
  context.outliveReader();
  const given = await readConfiguration(options);
  const configuration = await withClientSocket(given, options.clientSocket);
  for (const warning of configuration.warnings) context.warn(warning);
  if (configuration.mapping.discovery_addr === undefined) {
    throw wrongUsage(
      '--discovery-addr is missing; give it here, as MESHCACHE_DISCOVERY_ADDR in the environment, or as discovery_addr in the file of --config',
    );
  }
  const config = parseConfiguration(configuration);
  const { waitJoined } = options;
  const joinEndMs =
    typeof waitJoined === 'number' ? context.clock.nowMs() + 1000 * waitJoined : Number.POSITIVE_INFINITY;
  const starting = createStore(configuration, async () => {
    if (context.signal.aborted) return configuration;
    const other = await withClientSocket(given, options.clientSocket);
    for (const warning of other.warnings.slice(configuration.warnings.length)) context.warn(warning);
    return other;
  });
  const manager = new ServiceManager(process.env, defaultLogger());
  const isOver = aborted(context.signal);
  let failure: unknown;
  try {
    const store = await Promise.race([starting, isOver]);
    if (store !== undefined) await serve(store, { config, options, context, manager, joinEndMs });
    void manager.stopping('leaving the cluster');
  } catch (error) {
    failure = error;
  }
  const closed = starting.then((started) => started.close());
  if (!(await within(context.clock, NODE_CLOSE_TIMEOUT_MS, closed))) throw new CommandFailure(STILL_OPEN);
  if (failure !== undefined) throw failure;
}

/** Serves until the signal of `context` is aborted or the node has been drained. Prints when the node has joined. */
async function serve(store: MeshCacheStore, serving: Serving): Promise<void> {
  const { config, options, context, manager } = serving;
  const isOver = Promise.race([aborted(context.signal), store.drained.then(() => undefined)]);
  const { runtime } = store;
  if (!runtime.isJoined) {
    void manager.status(`not joined yet: ${runtime.troubles().join('; ')}`);
    if (options.waitJoined === undefined) context.print(startLine(store, { ...serving, isJoined: false }));
    if (!(await untilJoined(store, { isOver, endMs: serving.joinEndMs, clock: context.clock }))) return;
  }
  if (config.waitForDirectory) await Promise.race([runtime.waitForDirectory(), isOver]);
  if (context.signal.aborted) return;
  context.print(startLine(store, { ...serving, isJoined: true }));
  void manager.ready(`node ${runtime.nodeId} has joined the cluster at ${config.discoveryAddr}`);
  await isOver;
}

/**
 * Resolves to true when the node has joined, or to false if `isOver` resolves first. Throws {@link CommandFailure} at
 * `endMs` of the clock.
 */
async function untilJoined(
  { runtime }: MeshCacheStore,
  { isOver, endMs, clock }: { readonly isOver: Promise<undefined>; readonly endMs: number; readonly clock: Clock },
): Promise<boolean> {
  while (!runtime.isJoined) {
    const leftMs = endMs - clock.nowMs();
    if (leftMs <= 0) {
      throw new CommandFailure(
        `node ${runtime.nodeId} has not joined in the time of --wait-joined: ${runtime.troubles().join('; ')}; \`meshcache doctor\` with the same options says more`,
      );
    }
    if (await within(clock, Math.min(JOIN_POLL_MS, leftMs), isOver)) return false;
  }
  return true;
}

export function nodeCommand(context: CommandContext): Command {
  return addClientSocketOptions(addConfigurationOptions(new Command('node')))
    .description('run one node until SIGTERM or SIGINT')
    .option(
      '--wait-joined [seconds]',
      'print nothing before the node has joined; with seconds, end with status 1 if it has not by then',
      decimalNumber(0, WAIT_JOINED_MAX_S, 'seconds'),
    )
    .option('--print-unit', 'print a unit of systemd for the Node.js and the meshcache that run now, and end')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache node --discovery-addr 10.0.0.1:31990 --pool 64gb
  meshcache node --discovery-addr 10.0.0.1:31990 --disk-path /mnt/nvme/meshcache --disk-size 500gb
  sudo meshcache node --print-unit > /etc/systemd/system/meshcache.service
  meshcache node --config node.json --wait-joined 60 --log-format json
  meshcache node --config node.json -o eviction_policy=s3fifo -o verify_reads=true
  meshcache node --config node.json --client-socket /run/meshcache/node.sock -o client_socket_mode=0660 -o client_socket_group=llm
  MESHCACHE_DISCOVERY_ADDR=10.0.0.1:31990 meshcache node
${CONFIGURATION_HELP}

Processes of this host attach to the client socket and share pages with the whole cluster. By default it is
$XDG_RUNTIME_DIR/meshcache/node.sock; without that variable /run/meshcache/node.sock for root, /tmp/meshcache-<user id>/node.sock
for others; node-2.sock for a second node, and so on. Only the user of the node can connect, unless client_socket_mode and
client_socket_group let others in.

Prints one line when the node is ready. A node that finds no discovery master works alone: it prints that it has started and
has not joined yet, and the other line when a master has answered. With --log-format json both lines are records of the log,
unless --json asks for the plain object. With Type=notify, systemd is told when the node has joined.

On SIGTERM it leaves the cluster, writes what waits for the disk, and ends with status 0 within 5 seconds; a second one ends
it at once. Ends with status 0, too, when it has been drained: \`meshcache drain\`. Ends with status 2 when the
configuration is wrong or cannot be had on this machine, with 1 for other failures.
\`meshcache doctor\` with the same options says what is wrong with them.`,
    )
    .action(async (options: NodeOptions & { readonly printUnit?: true }) => {
      if (options.printUnit) context.write(await systemdUnit());
      else await runNode(options, context);
    });
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

/** Creates the store. If another node has taken its client socket meanwhile, `again` returns one that is free now. */
async function createStore(configuration: Configuration, again: () => Promise<Configuration>): Promise<MeshCacheStore> {
  try {
    return await MeshCacheStore.create({
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      // `serve` waits for the directory, where a signal can end the wait.
      extraConfig: { ...configuration.mapping, wait_for_directory: false },
    });
  } catch (error) {
    // A running node goes on without a disk that fails, but a disk that is unusable from the start is wrong usage.
    if (error instanceof DiskError) throw new CommandFailure(error.message, EXIT_WRONG_USAGE, { cause: error });
    const other = error instanceof SocketTakenError ? await again() : configuration;
    if (other.mapping.client_socket !== configuration.mapping.client_socket) return createStore(other, again);
    throw withOrigin(withPortKey(error), configuration);
  }
}

/** Adds the configuration key to the error of a discovery master that cannot listen, because a master knows no keys. */
function withPortKey(error: unknown): unknown {
  if (!(error instanceof ConfigError) || !error.message.startsWith('cannot listen on ')) return error;
  const advice = 'choose another port, above 1023';
  return new ConfigError(`configuration key "discovery_addr": ${error.message}; ${advice}`, { cause: error });
}

/**
 * The line which reports that the node has started, and whether it has joined. It is a log record if the log has the
 * JSON format.
 */
function startLine(
  store: MeshCacheStore,
  { config, options, isJoined }: Serving & { readonly isJoined: boolean },
): string {
  const { nodeId } = store.runtime;
  const started = {
    node_id: nodeId,
    pid: process.pid,
    is_joined: isJoined,
    discovery_addr: config.discoveryAddr,
    data_endpoint: store.runtime.localRdmaEndpoint,
    metrics_endpoint: store.metricsEndpoint,
    client_socket: store.clientSocket,
    resp_endpoint: store.respEndpoint,
    is_meta: store.runtime.isMeta,
    pool_bytes: store.stats().poolCapacityBytes,
    disk_bytes: store.stats().disk?.capacityBytes ?? 0,
  };
  if (options.json) return JSON.stringify(started);
  const state = isJoined ? 'ready' : 'started, not joined yet';
  if (defaultLogFormat() === 'json') {
    return jsonLine({ time: new Date(), level: 'info', message: `node ${state}`, fields: started });
  }
  const url = metricsUrl(started.metrics_endpoint, { isTls: config.metricsTlsCertFile !== undefined });
  const dashboard = url === undefined ? '' : `, ${config.metricsDashboard ? 'dashboard' : 'metrics server'} at ${url}`;
  const clients = started.client_socket === '' ? '' : `, clients at ${started.client_socket}`;
  const redis = started.resp_endpoint === '' ? '' : `, Redis clients at ${started.resp_endpoint}`;
  const why = isJoined ? '' : ` (${store.runtime.troubles().join('; ')})`;
  return `node ${nodeId} (process ${process.pid}) is ${state}${why}: data at ${started.data_endpoint}, discovery at ${started.discovery_addr}${clients}${redis}${dashboard}`;
}

function aborted(signal: AbortSignal): Promise<undefined> {
  if (signal.aborted) return Promise.resolve(undefined);
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(undefined), { once: true }));
}

/** The first default socket at which no node listens, or the reason why there is none. Creates its folder. */
async function freeClientSocket(
  env: Environment,
): Promise<{ readonly path: string } | { readonly path: undefined; readonly reason: string }> {
  const parts = ownRuntimeFolder();
  for (let nth = 1; nth <= NODES_MAX_COUNT; nth++) {
    const path = defaultClientSocket(parts, nth);
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      const reason = distrustOf(path, parts);
      if (reason !== '') return { path: undefined, reason };
      accessSync(dirname(path), constants.W_OK);
      if (lstatSync(path, { throwIfNoEntry: false }) === undefined || !(await isAnswering(path, env))) return { path };
    } catch (error) {
      return { path: undefined, reason: (error as Error).message };
    }
  }
  return { path: undefined, reason: `${NODES_MAX_COUNT} nodes have one in ${dirname(defaultClientSocket(parts))}` };
}

/** The systemd unit of the package, which starts the `meshcache` on PATH. */
const UNIT_FILE = fileURLToPath(new URL('../../deploy/meshcache.service', import.meta.url));
const COMMAND = '/usr/bin/env meshcache node';
/** Folders that look empty to the service, because the unit has ProtectHome=tmpfs. */
const HIDDEN_FOLDERS: readonly string[] = ['/home', '/root', '/run/user'];

/** Absolute paths of the programs of a service. */
interface InstalledPrograms {
  readonly node: string;
  /** The program `meshcache`, with symbolic links resolved. */
  readonly meshcache: string;
}

/** The package's unit, for the Node.js and the `meshcache` of this process. */
async function systemdUnit(): Promise<string> {
  const programs = { node: process.execPath, meshcache: await realpath(process.argv[1] as string) };
  return unitFor(programs, await readFile(UNIT_FILE, 'utf8'));
}

/**
 * The unit with the absolute paths of these programs, because a service has neither the PATH of a shell nor the folders
 * that nvm and others add to it. Programs in a home directory become visible to the service, and nothing else there.
 */
export function unitFor({ node, meshcache }: InstalledPrograms, unit: string): string {
  const lines = [`ExecStart=${[node, meshcache, 'node'].map(quoted).join(' ')}`];
  // Both programs need other files of their folders: libraries, and the packages that meshcache imports.
  const folders = new Set([dirname(dirname(node)), packagesOf(meshcache)].filter(isHidden));
  for (const folder of folders) lines.push(`BindReadOnlyPaths=${quoted(folder)}`);
  return unit.replace(`ExecStart=${COMMAND}`, () => lines.join('\n'));
}

/**
 * The folder that holds a program's package and the packages that it imports: the outermost node_modules, or the
 * checkout.
 */
function packagesOf(path: string): string {
  const at = path.indexOf('/node_modules/');
  return at < 0 ? resolve(dirname(path), '../..') : path.slice(0, at + '/node_modules'.length);
}

function isHidden(folder: string): boolean {
  return HIDDEN_FOLDERS.some((hidden) => `${folder}/`.startsWith(`${hidden}/`));
}

/** A path as a word of a unit: systemd splits lines at whitespace, and % begins a specifier. */
function quoted(path: string): string {
  const escaped = path.replaceAll('%', '%%');
  return /\s/.test(escaped) ? `"${escaped}"` : escaped;
}

/** The systemd program that sends messages to the service manager. */
const PROGRAM = 'systemd-notify';
/** How long one message may take, in milliseconds; the program waits until systemd has read it. */
const MESSAGE_TIMEOUT_MS = 5_000;

/**
 * Tells systemd the state of a service of `Type=notify` over the datagram socket that NOTIFY_SOCKET names. Messages go
 * through the program `systemd-notify`, because Node.js has no Unix datagram sockets; the unit needs
 * `NotifyAccess=all`, because that program is a child of the service. Without NOTIFY_SOCKET nothing is sent. A message
 * that cannot be sent is logged.
 */
class ServiceManager {
  readonly #isListening: boolean;
  readonly #log: Logger;
  #sending: Promise<void> = Promise.resolve();

  constructor(environment: { readonly NOTIFY_SOCKET?: string | undefined }, log: Logger) {
    this.#isListening = Boolean(environment.NOTIFY_SOCKET);
    this.#log = log;
  }

  /** Shows a text in `systemctl status`. */
  status(text: string): Promise<void> {
    return this.#send(statusOf(text));
  }

  /** Reports that the service has started, so that units which wait for it can start. */
  ready(status: string): Promise<void> {
    return this.#send('READY=1', statusOf(status));
  }

  /** Reports that the service is stopping; systemd kills it after the TimeoutStopSec of its unit. */
  stopping(status: string): Promise<void> {
    return this.#send('STOPPING=1', statusOf(status));
  }

  /** Sends the assignments as one message, after all earlier ones. Never rejects. */
  #send(...assignments: readonly string[]): Promise<void> {
    if (!this.#isListening) return this.#sending;
    this.#sending = this.#sending.then(() => this.#run(assignments));
    return this.#sending;
  }

  #run(assignments: readonly string[]): Promise<void> {
    return new Promise((resolve) => {
      execFile(PROGRAM, ['--', ...assignments], { timeout: MESSAGE_TIMEOUT_MS }, (error, _stdout, stderr) => {
        if (error !== null) {
          const reason = 'code' in error && error.code === 'ENOENT' ? `${PROGRAM} is not installed` : stderr.trim();
          this.#log.log('warn', 'cannot tell systemd about this service', {
            message: assignments[0],
            reason: reason || error.message,
          });
        }
        resolve();
      });
    });
  }
}

/** An assignment of the text as one line, because a line feed would begin another assignment. */
function statusOf(text: string): string {
  return `STATUS=${text.replace(/\s+/g, ' ')}`;
}
