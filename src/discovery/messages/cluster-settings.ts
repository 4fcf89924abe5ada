import { ConfigError, ProtocolError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { MeshCacheConfigFields } from '../../config.js';

/**
 * The settings that all nodes of a cluster must share. Ring points and replicas decide which nodes know of a page:
 * nodes that differ do not find each other's pages. Unverified reads rely on the owner's quarantine: if the owner
 * reuses memory earlier than the reader assumes, a read could return wrong bytes. All other settings may differ.
 */
export type ClusterSettings = Pick<
  MeshCacheConfigFields,
  'vnodes' | 'directoryReplicas' | 'verifyReads' | 'reuseQuarantineMs'
>;

/** A setting that differs between two nodes; `key` is its configuration key. */
export interface SettingDifference {
  readonly key: string;
  /** Value of the node that registers. */
  readonly theirs: SettingValue;
  /** Value of the node that runs the master. */
  readonly ours: SettingValue;
}

/** A refusal: the node that refuses, and why. */
export interface Refusal {
  /** The node that runs the master. */
  readonly nodeId: string;
  /** The settings that differ, at least one. */
  readonly differences: readonly SettingDifference[];
}

/** Value of a setting that nodes must share; text: a fingerprint. */
type SettingValue = number | boolean | string;

/** The key of a difference in fingerprints, which matters only between nodes of one namespace. */
export const FINGERPRINT_KEY = 'fingerprint';
/** The key of a difference between the date of a node and that of the cluster, in milliseconds since 1970. */
export const CLOCK_KEY = 'clock';
const VALUE_MAX_CHARACTERS = 128;

const DIFFERENCES_MAX_COUNT = 16;

/** Encodes the settings for a registration. */
export function encodeSettings(settings: ClusterSettings): Record<string, SettingValue> {
  return {
    vnodes: settings.vnodes,
    directory_replicas: settings.directoryReplicas,
    verify_reads: settings.verifyReads,
    reuse_quarantine_ms: settings.reuseQuarantineMs,
  };
}

/**
 * Decodes the settings of a registration, which may be empty. Unknown keys are ignored, so that versions can be mixed.
 * Throws `ProtocolError` for values that no configuration can have.
 */
export function decodeSettings(value: unknown): Partial<ClusterSettings> {
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value) || value instanceof Uint8Array) {
    throw new ProtocolError(`discovery: settings ${shown(value)}`);
  }
  const fields = value as Readonly<Record<string, unknown>>;
  const settings = {
    vnodes: numberOf(fields, 'vnodes'),
    directoryReplicas: numberOf(fields, 'directory_replicas'),
    verifyReads: flagOf(fields, 'verify_reads'),
    reuseQuarantineMs: numberOf(fields, 'reuse_quarantine_ms'),
  };
  return Object.fromEntries(Object.entries(settings).filter(([, setting]) => setting !== undefined));
}

/** The settings that differ; one that a side leaves out does not count. */
export function differencesOf(theirs: Partial<ClusterSettings>, ours: ClusterSettings): SettingDifference[] {
  const known = encodeSettings({ ...ours, ...theirs });
  const own = encodeSettings(ours);
  const differences = Object.entries(own).flatMap(([key, value]) => {
    const other = known[key] as SettingValue;
    return other === value ? [] : [{ key, theirs: other, ours: value }];
  });
  // Verified reads do not rely on the quarantine.
  const isVerified = ours.verifyReads && theirs.verifyReads !== false;
  return isVerified ? differences.filter(({ key }) => key !== 'reuse_quarantine_ms') : differences;
}

export function encodeDifferences(differences: readonly SettingDifference[]): unknown[] {
  return differences.map(({ key, theirs, ours }) => [key, theirs, ours]);
}

/** Decodes the differences of a refusal, including keys that only a later version knows. Throws `ProtocolError`. */
export function decodeDifferences(value: unknown): SettingDifference[] {
  if (!Array.isArray(value) || value.length === 0 || value.length > DIFFERENCES_MAX_COUNT) {
    throw new ProtocolError('discovery: differences');
  }
  return value.map((entry: unknown) => {
    const [key, theirs, ours] = Array.isArray(entry) ? (entry as unknown[]) : [];
    if (typeof key !== 'string' || !/^[a-z0-9_]{1,64}$/.test(key) || !isSetting(key, theirs) || !isSetting(key, ours)) {
      throw new ProtocolError('discovery: differences');
    }
    return { key, theirs, ours };
  });
}

/** The error for the user of a refused node; `master` is the master's `host:port`. */
export function refusalError({ nodeId, differences }: Refusal, master: string): ConfigError {
  const [{ key, theirs, ours }, ...more] = differences as [SettingDifference, ...SettingDifference[]];
  if (key === FINGERPRINT_KEY) {
    return new ConfigError(
      `configuration key "${key}": got ${theirs}, but node "${nodeId}", a member by discovery master at ${master}, has ${ours} in the same namespace ` +
        '(model, dtype, layout, namespace, ranks and sizes); load the same weights, give this model another namespace, or stop all nodes ' +
        `with ${ours} first`,
    );
  }
  if (key === CLOCK_KEY) {
    return new ConfigError(
      `the clock of this machine ${describeDates(theirs, ours, 'here', `in the cluster of discovery master at ${master}, node "${nodeId}"`)}; ` +
        'set it by NTP, and start this node again',
    );
  }
  const others = more.map((other) => `, ${other.key} (${other.theirs} here, ${other.ours} there)`).join('');
  return new ConfigError(
    `configuration key "${key}": got ${theirs}, but node "${nodeId}", discovery master at ${master}, has ${ours}; ` +
      `all nodes of a cluster must have the same${others && `; also${others.slice(1)}`}. Set ${key} to ${ours} here, or stop ` +
      `all nodes and start them with ${key} ${theirs}`,
  );
}

/**
 * The date of the cluster that a refused node's clock is too far ahead of, in milliseconds since 1970; undefined: the
 * node was refused for another reason.
 */
export function clusterDateOf({ differences }: Refusal): number | undefined {
  const date = differences.find(({ key }) => key === CLOCK_KEY);
  return date === undefined ? undefined : Number(date.ours);
}

/** The differences in words, such as `vnodes is 100 here and 160 there`; `isOurs`: "here" is the master's node. */
export function describeDifferences(differences: readonly SettingDifference[], isOurs: boolean): string {
  const texts = differences.map(({ key, theirs, ours }) => {
    if (key === CLOCK_KEY) return `its clock ${describeDates(theirs, ours, 'there', 'in the cluster')}; set it by NTP`;
    const [here, there] = isOurs ? [ours, theirs] : [theirs, ours];
    return `${key} is ${here} here and ${there} there`;
  });
  return texts.join(', ');
}

/** Whether a node is refused for its clock. */
export function isClockOff(differences: readonly SettingDifference[]): boolean {
  return differences.some(({ key }) => key === CLOCK_KEY);
}

/** The rule that differences break, for the log. */
export function ruleOf(differences: readonly SettingDifference[]): string {
  if (isClockOff(differences)) return 'its clock is too far ahead of those of the members';
  return 'all nodes of a cluster, or of a namespace, must share these settings';
}

function describeDates(theirs: SettingValue, ours: SettingValue, here: string, there: string): string {
  const aheadMs = Number(theirs) - Number(ours);
  return `is ${formatSpan(aheadMs)} ahead: it is ${formatDate(theirs)} ${here}, and ${formatDate(ours)} ${there}`;
}

function formatDate(ms: SettingValue): string {
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? 'no date' : date.toISOString();
}

function formatSpan(ms: number): string {
  const days = Math.floor(ms / 86_400_000);
  if (days >= 1) return `${days} day${days === 1 ? '' : 's'}`;
  return `${Math.round(ms / 1000)} s`;
}

function isSetting(key: string, value: unknown): value is SettingValue {
  if (key === FINGERPRINT_KEY) return typeof value === 'string' && value.length <= VALUE_MAX_CHARACTERS;
  return typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value));
}

function numberOf(fields: Readonly<Record<string, unknown>>, name: string): number | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  if (typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER) return value;
  throw new ProtocolError(`discovery: setting ${name} must be a number, got ${shown(value)}`);
}

function flagOf(fields: Readonly<Record<string, unknown>>, name: string): boolean | undefined {
  const value = fields[name];
  if (value === undefined || typeof value === 'boolean') return value;
  throw new ProtocolError(`discovery: setting ${name} must be true or false, got ${shown(value)}`);
}
