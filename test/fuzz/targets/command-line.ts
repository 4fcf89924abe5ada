import { InvalidArgumentError } from 'commander';
import { ConfigError } from '../../../src/base/errors.js';
import {
  DISK_MAX_BYTES,
  DISK_MIN_BYTES,
  PAGE_MAX_BYTES,
  POOL_MAX_BYTES,
  POOL_MIN_BYTES,
} from '../../../src/base/limits.js';
import { formatDiscoveryAddress, parseDiscoveryAddress } from '../../../src/base/settings/discovery-address.js';
import { parseConfiguration, readConfiguration, securityOf } from '../../../src/cli/settings/configuration.js';
import { sourceConfig } from '../../../src/cli/settings/endpoints.js';
import { CommandFailure } from '../../../src/command/context.js';
import {
  decimalNumber,
  discoveryAddr,
  diskBytes,
  diskSize,
  keyValue,
  pageBytes,
  poolBytes,
  poolSize,
  wholeNumber,
} from '../../../src/command/options.js';
import { CONFIG_KEYS } from '../../../src/config.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { checkSecrecy } from '../secrecy.js';
import { inputValue, valueInput } from '../values.js';

/** One value of an option, for all of them. */
export const commandLine: Fuzzer = {
  name: 'command-line',
  what: 'values of options of the command line: within their limits, or refused',
  form: 'bytes',
  inputMaxBytes: 300,
  tokens: [
    'gb',
    '4gb',
    'p',
    'unbounded',
    ',',
    ':',
    '=',
    'cluster_secret=',
    'metrics_token',
    '__proto__=1',
    '٣',
    '\u00a0',
    '1e9',
    '0x9',
  ].map((text) => Buffer.from(text)),
  seeds: () =>
    ['4gb', '10000p', 'unbounded', '64', '1.5', 'h:1,[::1]:2', 'vnodes=8', 'cluster_secret=fuzz-secret-0123456789'].map(
      (text) => Buffer.from(text),
    ),
  run(input) {
    const text = input.toString();
    const parsed = <T>(parse: (text: string) => T): T | undefined =>
      unlessRefused([InvalidArgumentError, CommandFailure], () => parse(text))?.value;
    checkRange(parsed(wholeNumber(1, 4096)), 1, 4096);
    checkRange(parsed(pageBytes), 64, PAGE_MAX_BYTES);
    checkRange(
      parsed((given) => poolBytes(given)),
      POOL_MIN_BYTES,
      POOL_MAX_BYTES,
    );
    checkRange(
      parsed((given) => diskBytes(given)),
      DISK_MIN_BYTES,
      DISK_MAX_BYTES,
    );
    const decimal = parsed(decimalNumber(0, 3600, 'seconds')) ?? 0;
    check(decimal >= 0 && decimal <= 3600, `${decimal} seconds`);
    for (const size of [parsed(poolSize), parsed(diskSize)]) {
      if (size?.kind === 'pages') checkRange(size.pages, 1, 1e12);
      if (size?.kind === 'bytes') checkRange(size.bytes, 1, Number.MAX_SAFE_INTEGER);
    }
    const address = parseDiscoveryAddress(parsed(discoveryAddr) ?? '');
    for (const { host, port } of address?.kind === 'list' ? address.endpoints : []) {
      check(host !== '' && !/\s/.test(host) && port >= 1 && port <= 65_535, `${host} port ${port}`);
    }
    if (address?.kind === 'dns') check(/^[\w.-]{1,253}$/.test(address.name), address.name);
    if (address !== undefined) check(parseDiscoveryAddress(formatDiscoveryAddress(address)) !== undefined, text);
    const option = parsed((given) => keyValue(given, { vnodes: '7' }));
    if (option === undefined) return;
    const names = Object.keys(option);
    check(names.length >= 1 && names.length <= 2 && names.includes('vnodes'), 'an option before is lost');
    check(!names.includes('cluster_secret') && !names.includes('clusterSecret'), 'a secret on the command line');
  },
};

function checkRange(value: number | undefined, min: number, max: number): void {
  check(value === undefined || (Number.isSafeInteger(value) && value >= min && value <= max), `${value}`);
}

const SECRET = 'fuzz-secret-0123456789';

/** Variables, names without the prefix, and values of `--option`. */
export const environmentVariables: Fuzzer = {
  name: 'environment',
  what: 'variables of the environment: the configuration of keys that there are, and no secret in a message',
  form: 'value',
  tokens: CONFIG_KEYS.map((key) => Buffer.from(`"${key}"`)),
  seeds: () => [
    valueInput([{ discovery_addr: 'h:1', cluster_secret: SECRET, vnode: '8', log: 'loud' }, { vnodes: '9' }]),
    valueInput([{ discovery_addr: 'h', metrics_token: SECRET, metrics_port: 'tcp://10.96.0.5:31997' }, {}]),
    valueInput([{ disk_path: '/d', disk_enabled: 'yes', disk_size: '2mb' }, { diskPath: '/e' }]),
  ],
  async run(input) {
    const found = inputValue(input)?.value;
    if (!Array.isArray(found)) return;
    const [given, option] = [textsOf(found[0]), textsOf(found[1])];
    const environment = Object.fromEntries(
      [...given].map(([name, value]) => [`MESHCACHE_${name.toUpperCase()}`, value]),
    );
    const said: string[] = [];
    try {
      const read = await readConfiguration({ option: Object.fromEntries(option) }, environment);
      said.push(...read.warnings);
      const prototype: unknown = Object.getPrototypeOf(read.mapping);
      check(prototype === null || prototype === Object.prototype, 'a key that became the prototype');
      if (read.mapping.discovery_addr !== undefined) unlessRefused([CommandFailure], () => sourceConfig(read));
      unlessRefused([CommandFailure], () => securityOf(read));
      parseConfiguration(read);
    } catch (error) {
      if (!(error instanceof CommandFailure || error instanceof ConfigError)) throw error;
      said.push(error.message);
    }
    checkSecrecy({ ...Object.fromEntries(given), other: [...option].flat() }, said);
  },
};

function textsOf(value: unknown): Map<string, string> {
  if (typeof value !== 'object' || value === null) return new Map();
  return new Map(Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}
