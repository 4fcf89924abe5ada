import { type Command, InvalidArgumentError, Option } from 'commander';
import { DISK_MAX_BYTES, DISK_MIN_BYTES, PAGE_MAX_BYTES, POOL_MAX_BYTES, POOL_MIN_BYTES } from '../base/limits.js';
import { toSnakeCase } from '../base/names.js';
import {
  DISCOVERY_ADDRESS_ALLOWED,
  discoveryAddressFault,
  parseDiscoveryAddress,
} from '../base/settings/discovery-address.js';
import { formatSize, parseSize } from '../base/sizes.js';
import { CONFIG_KEYS, DEFAULT_EVICTION_POLICY, EVICTION_POLICIES, SECRET_KEYS } from '../config.js';
import { LOG_FORMATS } from '../system/system-log.js';
import { wrongUsage } from './context.js';

/*
 * Parsers of option values. Each throws commander's InvalidArgumentError with what is allowed; commander puts
 * the option's name and what was given in front of it, and the program ends with status 2.
 */

/** Parses a whole number within bounds, both included. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) {
      throw new InvalidArgumentError(`Allowed is a whole number of ${min} to ${max}.`);
    }
    return value;
  };
}

/** Parses a number within bounds, both included. */
export function decimalNumber(min: number, max: number, unit: string): (text: string) => number {
  return (text) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`Allowed is ${min} to ${max} ${unit}.`);
    return value;
  };
}

/** Parses the bytes of a page: a multiple of 8, so that both components are whole words. */
export function pageBytes(text: string): number {
  const bytes = parseSize(text);
  if (bytes === undefined || bytes < 64 || bytes > PAGE_MAX_BYTES || bytes % 8 !== 0) {
    throw new InvalidArgumentError(
      `Allowed is 64 B to ${formatSize(PAGE_MAX_BYTES)} in multiples of 8, as bytes or with kb, mb or gb.`,
    );
  }
  return bytes;
}

/** A pool's size as given; `pages` and `unbounded` are resolved when the page size is known. */
export type PoolSize =
  | { readonly kind: 'bytes'; readonly bytes: number }
  | { readonly kind: 'pages'; readonly pages: number }
  | { readonly kind: 'unbounded' };

/** Parses a pool size: `4gb`, `10000p` (pages), `unbounded`. */
export function poolSize(text: string): PoolSize {
  if (text === 'unbounded') return { kind: 'unbounded' };
  const pages = /^(\d{1,12})p$/.exec(text);
  if (pages !== null && Number(pages[1]) > 0) return { kind: 'pages', pages: Number(pages[1]) };
  return { kind: 'bytes', bytes: poolBytes(text, ', a number of pages such as 10000p, or unbounded') };
}

/** Parses the bytes of a pool: `4gb`. */
export function poolBytes(text: string, alsoAllowed = ''): number {
  const bytes = parseSize(text);
  if (bytes === undefined || bytes < POOL_MIN_BYTES || bytes > POOL_MAX_BYTES) {
    const range = `${formatSize(POOL_MIN_BYTES)} to ${formatSize(POOL_MAX_BYTES)}`;
    throw new InvalidArgumentError(`Allowed is ${range}, as bytes or with kb, mb, gb or tb${alsoAllowed}.`);
  }
  return bytes;
}

/** A disk's size as given: `100gb`, `30000p` (pages). */
export type DiskSize = Exclude<PoolSize, { readonly kind: 'unbounded' }>;

export function diskSize(text: string): DiskSize {
  const pages = /^(\d{1,12})p$/.exec(text);
  if (pages !== null && Number(pages[1]) > 0) return { kind: 'pages', pages: Number(pages[1]) };
  return { kind: 'bytes', bytes: diskBytes(text, ', or a number of pages such as 30000p') };
}

/** Parses the bytes of a disk tier: `100gb`. */
export function diskBytes(text: string, alsoAllowed = ''): number {
  const bytes = parseSize(text);
  if (bytes === undefined || bytes < DISK_MIN_BYTES || bytes > DISK_MAX_BYTES) {
    const range = `${formatSize(DISK_MIN_BYTES)} to ${formatSize(DISK_MAX_BYTES)}`;
    throw new InvalidArgumentError(`Allowed is ${range}, as bytes or with kb, mb, gb or tb${alsoAllowed}.`);
  }
  return bytes;
}

/** What `--discovery-addr` of every command says in its help. */
export const DISCOVERY_ADDR_HELP =
  'host:port of a discovery master, several with commas; or dns://name, etcd://host:port';

/**
 * Checks a discovery address: `host:port`, several of them, or a source of addresses such as `dns://name`. Returns it
 * as given.
 */
export function discoveryAddr(text: string): string {
  if (parseDiscoveryAddress(text) !== undefined) return text.replaceAll(' ', '');
  const fault = discoveryAddressFault(text);
  // Commander would repeat the text, which may have a password.
  if (fault !== undefined) throw wrongUsage(`--discovery-addr: ${fault}`);
  throw new InvalidArgumentError(`Allowed is ${DISCOVERY_ADDRESS_ALLOWED}.`);
}

/** Parses one `key=value`; an option that is given several times collects them. */
export function keyValue(text: string, earlier: Readonly<Record<string, string>> = {}): Record<string, string> {
  const at = text.indexOf('=');
  // Commander would repeat the value in its message.
  if (at < 1 && /token|secret/i.test(text)) {
    throw wrongUsage('--option: a value that is not shown is not key=value with a configuration key');
  }
  if (at < 1) throw new InvalidArgumentError('Allowed is key=value with a configuration key.');
  const key = toSnakeCase(text.slice(0, at));
  if (SECRET_KEYS.has(key)) {
    const file = CONFIG_KEYS.includes(`${key}_file`) ? `${key}_file` : `${key} in the file of --config`;
    throw wrongUsage(
      `--option ${key}: every user of this machine can read a command line; use MESHCACHE_${key.toUpperCase()} or ${file}`,
    );
  }
  return { ...earlier, [text.slice(0, at)]: text.slice(at + 1) };
}

/** The option `--config` of a command that uses only the discovery address from it. */
export function configOption(): Option {
  return new Option('--config <file>', 'JSON file with configuration keys');
}

/** The option `--policy`. */
export function policyOption(): Option {
  return new Option('--policy <name>', 'eviction policy of the pools')
    .choices([...EVICTION_POLICIES])
    .default(DEFAULT_EVICTION_POLICY);
}

/** The option `--json`, the same for every command. */
export function jsonOption(): Option {
  return new Option('--json', 'print the result as one JSON object').default(false);
}

/** The option `--log-format`, the same for every command. */
export function logFormatOption(): Option {
  return new Option('--log-format <format>', 'form of the log on stderr: one JSON object a line, or text').choices([
    ...LOG_FORMATS,
  ]);
}

/** Parses comma-separated values, each once. */
export function listOf<T>(parse: (text: string) => T): (text: string) => T[] {
  return (text) => {
    const values = text.split(',').map((part) => parse(part.trim()));
    return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  };
}

/** The flags of this help group that stand on the command line. */
export function flagsGiven(command: Command, helpGroup: string): string[] {
  return command.options
    .filter((option) => option.helpGroupHeading === helpGroup && isGiven(command, option.attributeName()))
    .map((option) => option.long ?? option.flags);
}

/** For the name of an option: options one of which must be given as well, or the option would change nothing. */
export type OptionNeeds = Readonly<Record<string, readonly string[]>>;

/** Throws a `CommandFailure` if an option stands on the command line that changes nothing. */
export function checkNeeds(command: Command, needs: OptionNeeds): void {
  const flagOf = (name: string): string => {
    const option = command.options.find((each) => each.attributeName() === name);
    return option?.long ?? name;
  };
  for (const [name, others] of Object.entries(needs)) {
    if (!isGiven(command, name) || others.some((other) => isGiven(command, other))) continue;
    throw wrongUsage(`${flagOf(name)} changes nothing without ${others.map(flagOf).join(' or ')}`);
  }
}

function isGiven(command: Command, name: string): boolean {
  return command.getOptionValueSource(name) === 'cli';
}
