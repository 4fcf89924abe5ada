import { CLUSTER_SECRET_ALLOWED, ClusterSecrets } from '../environment/credentials.js';
import { isEveryAddress } from '../environment/network.js';
import { CLIENT_SOCKET_PATH_MAX_BYTES } from '../limits.js';
import { formatSize, parseSize } from '../sizes.js';
import { DISCOVERY_ADDRESS_ALLOWED, discoveryAddressFault, parseDiscoveryAddress } from './discovery-address.js';

/** How one configuration key is parsed. */
export interface Field {
  /** Returns the parsed value, or undefined if it is not allowed. */
  readonly parse: (value: unknown) => unknown;
  readonly allowed: string;
  readonly byDefault: unknown;
  /**
   * Describes a wrong value better than the value and `allowed` do: which part is wrong, or without a part that must
   * not be shown. Undefined: there is nothing more to say.
   */
  readonly fault?: (value: unknown) => string | undefined;
}

/** A fingerprint of a model's weights, in settings and in namespaces of clients. */
export const FINGERPRINT = /^[\x21-\x7e]{1,128}$/;
export const FINGERPRINT_ALLOWED = '1 to 128 visible characters without spaces, such as a digest in hex';

/** Formats a wrong value for messages. */
export function describeValue(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  return Array.isArray(value) ? 'a list' : typeof value === 'object' && value !== null ? 'an object' : String(value);
}

/** Text that matches `test`, without spaces around it. */
export function text(allowed: string, byDefault: string | undefined, test = /\S/): Field {
  return { parse: (v) => (typeof v === 'string' && test.test(v) ? v.trim() : undefined), allowed, byDefault };
}

/** Any text, which may be empty. */
export function freeText(byDefault: string): Field {
  return { parse: (v) => (typeof v === 'string' ? v : undefined), allowed: 'text', byDefault };
}

/** Converts a number, or a number given as text; else NaN. */
export function toNumber(value: unknown): number {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && /^\s*[+-]?\d+(\.\d+)?\s*$/.test(value) ? Number(value) : Number.NaN;
}

/** A whole number, which may be given as text. */
export function integer(min: number, max: number, byDefault: number | undefined): Field {
  return {
    parse(value) {
      const n = toNumber(value);
      return Number.isSafeInteger(n) && n >= min && n <= max ? n : undefined;
    },
    allowed: `a whole number of ${min} to ${max}`,
    byDefault,
  };
}

/** A number, which may be given as text. */
export function decimal(min: number, max: number, byDefault: number, unit: string): Field {
  return {
    parse(value) {
      const n = toNumber(value);
      return n >= min && n <= max ? n : undefined;
    },
    allowed: `${min} to ${max} ${unit}`,
    byDefault,
  };
}

/** A number of bytes, with or without a unit. */
export function size(min: number, max: number, byDefault: string | undefined): Field {
  return {
    parse(value) {
      const bytes = parseSize(value);
      return bytes !== undefined && bytes >= min && bytes <= max ? bytes : undefined;
    },
    allowed: `${formatSize(min)} to ${formatSize(max)}, as bytes or with b, kb, mb, gb or tb, for example "4gb"`,
    byDefault: byDefault === undefined ? undefined : parseSize(byDefault),
  };
}

/** Converts a boolean, also given as text or as 0 or 1; undefined for anything else. */
export function toBoolean(value: unknown): boolean | undefined {
  if (typeof value === 'boolean') return value;
  const word = typeof value === 'string' || typeof value === 'number' ? String(value).trim().toLowerCase() : '';
  if (word === 'true' || word === '1') return true;
  return word === 'false' || word === '0' ? false : undefined;
}

/** A boolean, which may be given as text or as 0 or 1. */
export function flag(byDefault: boolean): Field {
  return { parse: toBoolean, allowed: 'true or false', byDefault };
}

/** A host name or address of this machine that other nodes reach. */
export function ownHost(): Field {
  return {
    parse(value) {
      const host = typeof value === 'string' ? value.trim() : '';
      return /^[^\s,]+$/.test(host) && !isEveryAddress(host) ? host : undefined;
    },
    allowed:
      'a host name or address of this machine that the other nodes reach, for example "10.0.0.2"; 0.0.0.0 and :: are addresses to ' +
      'listen on, which nobody can connect to; without the key the address on the route to discovery is taken',
    byDefault: undefined,
  };
}

/**
 * Permission bits in octal digits, as for chmod. The owner's digit must be 6 or 7: this rejects numbers that a YAML
 * reader has made of 0600 or 0660, which would stand for other bits.
 */
export function permissions(byDefault: string): Field {
  return {
    parse(value) {
      const digits = typeof value === 'string' || typeof value === 'number' ? String(value).trim() : '';
      return /^0?[67][0-7]{2}$/.test(digits) ? digits.padStart(4, '0') : undefined;
    },
    allowed: 'permission bits in octal digits, with those of the owner, as text: "0600", "0660", "0666"',
    byDefault,
  };
}

/** The path of a Unix socket. */
export function socketPath(): Field {
  return {
    parse(value) {
      const path = typeof value === 'string' ? value.trim() : '';
      const bytes = Buffer.byteLength(path);
      return bytes >= 1 && bytes <= CLIENT_SOCKET_PATH_MAX_BYTES && !path.includes('\0') ? path : undefined;
    },
    allowed: `the path of a Unix socket, of at most ${CLIENT_SOCKET_PATH_MAX_BYTES} bytes`,
    byDefault: undefined,
  };
}

/** A group of this machine, by name or number. */
export function group(): Field {
  return {
    parse(value) {
      const name = Number.isSafeInteger(value) || typeof value === 'string' ? String(value).trim() : '';
      return /^[^\s:]+$/.test(name) && !name.startsWith('-') ? name : undefined;
    },
    allowed: 'the name or number of a group of this machine',
    byDefault: undefined,
  };
}

/** One of several words. */
export function choice(values: readonly string[], byDefault: string): Field {
  return {
    parse(value) {
      const word = typeof value === 'string' ? value.trim().toLowerCase() : '';
      return values.includes(word) ? word : undefined;
    },
    allowed: values.join(', ').replace(/, (?=[^,]*$)/, ' or '),
    byDefault,
  };
}

/** A list of names, or text with commas between them. */
export function names(): Field {
  return {
    parse(value) {
      const list = typeof value === 'string' ? value.split(',') : value;
      if (!Array.isArray(list)) return undefined;
      const trimmed = list.map((name: unknown) => (typeof name === 'string' ? name.trim() : ''));
      return trimmed.every((name) => name !== '') ? trimmed : undefined;
    },
    allowed: 'names, comma-separated',
    byDefault: [],
  };
}

/** One secret, or two while it is being changed. */
export function secrets(): Field {
  return {
    parse(value) {
      if (value instanceof ClusterSecrets) return value;
      return ClusterSecrets.of(Array.isArray(value) ? value : [value]);
    },
    allowed: CLUSTER_SECRET_ALLOWED,
    byDefault: undefined,
  };
}

/** Where discovery masters are found: see {@link parseDiscoveryAddress}. */
export function discoveryAddress(): Field {
  return {
    parse: (v) => (typeof v === 'string' && parseDiscoveryAddress(v) !== undefined ? v.replaceAll(' ', '') : undefined),
    allowed: DISCOVERY_ADDRESS_ALLOWED,
    fault: (v) => (typeof v === 'string' ? discoveryAddressFault(v) : undefined),
    byDefault: undefined,
  };
}
