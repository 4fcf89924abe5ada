import { type Command, Option } from 'commander';
import { isLogLevel, LOG_LEVELS } from '../../base/environment/log.js';
import { ConfigError } from '../../base/errors.js';
import { CLIENT_SOCKET_PATH_MAX_BYTES } from '../../base/limits.js';
import { nearestName, toSnakeCase } from '../../base/names.js';
import { wrongUsage } from '../../command/context.js';
import { DISCOVERY_ADDR_HELP, discoveryAddr, diskBytes, keyValue, poolBytes } from '../../command/options.js';
import { CONFIG_KEYS, MeshCacheConfig } from '../../config.js';
import type { SecurityConfig } from '../../net/credentials/secured-environment.js';
import { systemFiles } from '../../system/files/system-files.js';
import { isLogFormat, LOG_FORMATS } from '../../system/system-log.js';

/*
 * Reads the configuration of a node, for every command that needs one. Later sources in this list override earlier
 * ones: the JSON file of --config, the environment (MESHCACHE_<KEY>), the options of the command line.
 */

export interface ConfigurationOptions {
  /** The value of the key `discovery_addr`. */
  readonly discoveryAddr?: string;
  /** Bytes of the pool. */
  readonly pool?: number;
  /** Folder of the disk tier. Without it there is no tier, unless one is configured elsewhere. */
  readonly diskPath?: string;
  /** Bytes of the disk tier. */
  readonly diskSize?: number;
  /** Path of a JSON file with configuration keys. */
  readonly config?: string;
  readonly option?: Readonly<Record<string, string>>;
}

/** Configuration keys from the options of a command, the environment and a file. */
export interface Configuration {
  /** Keys as given, in snake_case; the values are not checked yet. */
  readonly mapping: Readonly<Record<string, unknown>>;
  /** Source of each key's value, for messages: `MESHCACHE_VNODES`, `--pool`, `node.json`. */
  readonly origins: ReadonlyMap<string, string>;
  /**
   * Settings that are probably mistakes: variables whose names are nearly those of keys, wrong log settings, and keys
   * without effect.
   */
  readonly warnings: readonly string[];
}

type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

const PREFIX = 'MESHCACHE_';
/**
 * Names with our prefix that are not keys: those of the program itself, of its build, and of a Kubernetes Service with
 * our name.
 */
const OTHER_NAMES =
  /^(LOG|LOG_FORMAT|NATIVE|NO_RDMA|TOKEN_FILE|TEST_.*|PORT|PORT_.*|SERVICE_.*|.*_(SERVICE|TCP|UDP)_.*)$/;
/** Keys with which a program authenticates to the nodes. */
const SECURITY_KEYS: ReadonlySet<string> = new Set([
  'cluster_secret',
  'cluster_secret_file',
  'tls_cert_file',
  'tls_key_file',
  'tls_ca_file',
  'tls_crl_file',
  'tls_names',
]);
/** A placeholder, because a configuration must have an address. */
const ANY_ADDRESS = '127.0.0.1:1';

/** Adds the options that define a node's configuration to a command. */
export function addConfigurationOptions(command: Command): Command {
  return command
    .option('--discovery-addr <address>', DISCOVERY_ADDR_HELP, discoveryAddr)
    .option('--pool <size>', 'pool size (default: 4gb)', (text) => poolBytes(text))
    .option('--disk-path <folder>', 'enable the disk tier in this folder; only one node may use it')
    .option('--disk-size <size>', 'size of the disk tier, its index included, such as 100gb', (text) => diskBytes(text))
    .option('--config <file>', 'JSON file with configuration keys')
    .option('-o, --option <key=value>', 'a configuration key; may be repeated', keyValue);
}

export const CONFIGURATION_HELP = `
Every configuration key is also taken from the environment, as MESHCACHE_DISCOVERY_ADDR, MESHCACHE_GLOBAL_SEGMENT_SIZE and so
on. Options win over the environment, the environment wins over the file. Secrets are taken from the environment or the
file only: a command line can be read by every user of the machine.
MESHCACHE_LOG in the environment (debug, info, warn, error) says from which level on a node writes its log to stderr; warn
without it. With debug, a command that fails prints its stack too. MESHCACHE_LOG_FORMAT (text, json) is what --log-format says.`;

/**
 * Reads the configuration. Throws {@link CommandFailure} with status 2 for a file that cannot be read, and for options
 * that contradict each other.
 */
export async function readConfiguration(
  options: ConfigurationOptions,
  environment: EnvironmentVariables = process.env,
): Promise<Configuration> {
  // A Map, because the key `__proto__` of a file would be special in an object.
  const values = new Map<string, unknown>();
  const origins = new Map<string, string>();
  const give = (key: string, value: unknown, origin: string): void => {
    values.set(key, value);
    origins.set(key, origin);
  };
  if (options.config !== undefined) {
    for (const [key, value] of await readConfigFile(options.config))
      if (value !== null) give(key, value, options.config);
  }
  for (const [key, value] of variablesOf(environment)) give(key, value, variableOf(key));
  if (options.discoveryAddr !== undefined) {
    give('discovery_addr', options.discoveryAddr, '--discovery-addr');
  }
  if (options.pool !== undefined) give('global_segment_size', options.pool, '--pool');
  if (options.diskPath !== undefined) {
    give('disk_enabled', true, '--disk-path');
    give('disk_path', options.diskPath, '--disk-path');
  }
  if (options.diskSize !== undefined) give('disk_size', options.diskSize, '--disk-size');
  for (const [name, value] of Object.entries(options.option ?? {})) give(toSnakeCase(name), value, '--option');
  // Without a folder, the size would be checked but have no effect.
  if (options.diskSize !== undefined && !values.has('disk_enabled')) {
    throw wrongUsage('--disk-size is given without --disk-path; give the folder, or leave the size out');
  }
  const warnings = [...misspeltVariables(environment), ...wrongLogSettings(environment)];
  for (const key of ['disk_path', 'disk_size', 'disk_index_size', 'disk_write']) {
    if (!values.has(key) || values.has('disk_enabled')) continue;
    warnings.push(`${key} (${origins.get(key)}) has no effect: disk_enabled is not set`);
  }
  return { mapping: Object.fromEntries(values), origins, warnings };
}

/** Checks every value. Throws {@link ConfigError}, which names the source of the wrong value. */
export function parseConfiguration(configuration: Configuration): MeshCacheConfig {
  try {
    return MeshCacheConfig.fromExtraConfig(configuration.mapping);
  } catch (error) {
    throw withOrigin(error, configuration);
  }
}

/** The secrets and certificates with which this program authenticates to the nodes. Other keys are not checked. */
export function securityOf(configuration: Configuration): SecurityConfig {
  const given = Object.entries(configuration.mapping).filter(([key]) => SECURITY_KEYS.has(key));
  try {
    return MeshCacheConfig.fromExtraConfig({ ...Object.fromEntries(given), discovery_addr: ANY_ADDRESS });
  } catch (error) {
    throw wrongUsage((withOrigin(error, configuration) as Error).message);
  }
}

/** Adds the source of the key that a configuration error names. Other errors are returned unchanged. */
export function withOrigin(error: unknown, { origins }: Configuration): unknown {
  if (!(error instanceof ConfigError)) return error;
  const key = keyOf(error.message);
  const origin = key === undefined ? undefined : origins.get(key);
  // Options need no source: the user has just written them.
  if (origin === undefined || origin.startsWith('-') || error.message.startsWith(`${origin}: `)) return error;
  return new ConfigError(`${origin}: ${error.message}`, { cause: error });
}

/** The configuration key that a message is about. */
function keyOf(message: string): string | undefined {
  const named = /configuration key "([A-Za-z_]+)"/.exec(message)?.[1];
  if (named !== undefined) return toSnakeCase(named);
  if (message.startsWith('discovery address')) return 'discovery_addr';
  return CONFIG_KEYS.find((key) => message.startsWith(`${key}:`));
}

/** Keys and values of a JSON file. */
async function readConfigFile(path: string): Promise<Map<string, unknown>> {
  let text: string;
  try {
    text = (await systemFiles.readFile(path)).toString();
  } catch (error) {
    throw wrongUsage(`--config ${path}: ${(error as Error).message}`);
  }
  const parsed = parseJson(text, path);
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw wrongUsage(`--config ${path}: must hold a JSON object of configuration keys`);
  }
  const values = new Map<string, unknown>();
  for (const [name, value] of Object.entries(parsed)) {
    const key = toSnakeCase(name);
    if (values.has(key)) throw wrongUsage(`--config ${path}: configuration key "${key}" is given twice`);
    values.set(key, value);
  }
  return values;
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // The message may quote the text, which may contain a secret.
    const reason = (error as Error).message.replace(/, (\.\.\.)?".*$/s, '');
    throw wrongUsage(`--config ${path}: not JSON: ${reason}`);
  }
}

/**
 * Value that Kubernetes sets if the variable of a Service is named like one of our keys:
 * `MESHCACHE_METRICS_PORT=tcp://10.96.0.5:31997`.
 */
const SERVICE_LINK = /^(tcp|udp|sctp):\/\//;

/** Keys from the environment. An empty variable counts as not set. */
function variablesOf(environment: EnvironmentVariables): [key: string, value: string][] {
  return CONFIG_KEYS.flatMap((key): [string, string][] => {
    const value = environment[variableOf(key)];
    const isGiven = value !== undefined && value !== '' && !(key.endsWith('_port') && SERVICE_LINK.test(value));
    return isGiven ? [[key, value]] : [];
  });
}

/** One warning for each environment variable whose name is nearly a key's. */
function misspeltVariables(environment: EnvironmentVariables): string[] {
  return Object.keys(environment).flatMap((name) => {
    const rest = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : '';
    if (rest === '' || OTHER_NAMES.test(rest) || CONFIG_KEYS.includes(rest.toLowerCase())) return [];
    const near = nearestName(rest.toLowerCase(), CONFIG_KEYS);
    return near === undefined ? [] : [`${name} in the environment is not known; did you mean ${variableOf(near)}?`];
  });
}

function wrongLogSettings({ MESHCACHE_LOG: level, MESHCACHE_LOG_FORMAT: format }: EnvironmentVariables): string[] {
  const wrong = (name: string, given: string, allowed: readonly string[], taken: string): string =>
    `${name} in the environment: got ${JSON.stringify(given)}, allowed is ${allowed.join(', ')}; ${taken} is taken`;
  const warnings: string[] = [];
  if (level && !isLogLevel(level)) warnings.push(wrong('MESHCACHE_LOG', level, LOG_LEVELS, 'warn'));
  if (format && !isLogFormat(format)) warnings.push(wrong('MESHCACHE_LOG_FORMAT', format, LOG_FORMATS, 'text'));
  return warnings;
}

function variableOf(key: string): string {
  return PREFIX + key.toUpperCase();
}

/** Path of the client socket; false: none; true: the configured one, or one in the run-time folder. */
export type ClientSocketOption = string | boolean;

/** Adds the options `--client-socket` and `--no-client-socket`. */
export function addClientSocketOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--client-socket <path>',
        'Unix socket for the processes of this host; without it one in the run-time folder, which is printed',
      ).default(true, 'in the run-time folder'),
    )
    .option('--no-client-socket', 'do not let processes attach to this node');
}

/** The configuration with the option applied. */
export function withClientSocketOption(configuration: Configuration, option: ClientSocketOption): Configuration {
  const { mapping, origins } = configuration;
  if (option === true) return configuration;
  if (!option) return { ...configuration, mapping: { ...mapping, client_socket: null } };
  const given = new Map(origins).set('client_socket', '--client-socket');
  return { ...configuration, mapping: { ...mapping, client_socket: option }, origins: given };
}

/** Whether the kernel accepts the path, and the slightly longer path of the descriptor socket. */
export function isSocketPath(path: string): boolean {
  return Buffer.byteLength(path) <= CLIENT_SOCKET_PATH_MAX_BYTES;
}
