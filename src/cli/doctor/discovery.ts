import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { CLOCK_AHEAD_MAX_MS } from '../../base/limits.js';
import {
  type DiscoveryAddress,
  formatDiscoveryAddress,
  parseDiscoveryAddress,
} from '../../base/settings/discovery-address.js';
import { CommandFailure } from '../../command/context.js';
import { examineSource } from '../../discovery/sources/open-source.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { type Configuration, securityOf } from '../settings/configuration.js';
import { sourceConfig } from '../settings/endpoints.js';
import { ClusterQuery, NoMasterFailure } from '../status/cluster-query.js';
import { checkSilentDiscovery, unauthenticatedAtDiscovery } from './configuration.js';
import type { Check, Finding } from './finding.js';

/** Most addresses to show. */
const SHOWN_MAX_COUNT = 3;

const SUBJECT = 'discovery source';

type Source = Exclude<DiscoveryAddress, { readonly kind: 'list' }>;

/** Result of asking a source: the addresses that it names, and findings about it. */
interface SourceAnswer {
  readonly found: readonly Endpoint[];
  readonly findings: readonly Finding[];
}

/** Advice by the text of the error. */
const ADVICE: readonly (readonly [RegExp, (address: Source) => string])[] = [
  [/user name is empty/, () => 'this etcd asks for a user: set etcd_user and etcd_password'],
  [
    /invalid user ID or password|authentication failed/,
    () => 'check etcd_user and etcd_password (MESHCACHE_ETCD_PASSWORD)',
  ],
  [
    /permission denied/,
    ({ name }) => `grant the user the right: etcdctl role grant-permission ROLE readwrite --prefix=true /${name}/`,
  ],
  [
    /certificate|self.signed|issuer|alert|altname/i,
    () =>
      'set etcd_ca_file to the authority that signed the certificate of etcd, and etcd_cert_file and etcd_key_file if etcd asks for one',
  ],
  [
    /EPROTO|SSL|wrong version number|socket hang up|ECONNRESET|no JSON|Parse Error/,
    () => 'is this the client port of an etcd from version 3.4 on? etcds:// is for TLS, etcd:// for none',
  ],
];

/** Most addresses of a source to try. */
const TRIED_MAX_COUNT = 3;
/** Seconds between the clocks of two machines above which NTP cannot be working. */
const CLOCK_DIFFERENCE_MAX_S = 1;

/** Checks of a configuration's discovery addresses, or of the source that names them. Empty without a valid address. */
export function discoveryChecks(configuration: Configuration): [string, Check][] {
  const { discovery_addr: given } = configuration.mapping;
  const address = given === undefined ? undefined : parseDiscoveryAddress(String(given));
  if (address === undefined) return [];
  if (address.kind !== 'list') return [['discovery source', () => checkSource(address, configuration)]];
  return address.endpoints.map((endpoint) => ['discovery', () => checkDiscovery(endpoint, configuration)]);
}

/** Asks the source, and the masters at its first addresses. */
async function checkSource(
  address: Exclude<DiscoveryAddress, { readonly kind: 'list' }>,
  configuration: Configuration,
): Promise<Finding[]> {
  const { found, findings } = await askSource(address, configuration);
  const tried = found.slice(0, TRIED_MAX_COUNT);
  const answers = await Promise.all(tried.map((endpoint) => checkDiscovery(endpoint, configuration)));
  return [...findings, ...answers.flat()];
}

async function checkDiscovery(endpoint: Endpoint, configuration: Configuration): Promise<Finding[]> {
  const query = new ClusterQuery(securityOf(configuration));
  try {
    const members = await query.members([endpoint]);
    const detail = `${formatEndpoint(endpoint)} answers and knows ${members.length} nodes`;
    return [{ subject: 'discovery', state: 'ok', detail }, ...checkClock(query)];
  } catch (error) {
    if (!(error instanceof NoMasterFailure)) throw error;
    const reason = error.reasons.join('; ');
    return [error.isAuthentication ? unauthenticatedAtDiscovery(reason) : await checkSilentDiscovery(endpoint, reason)];
  } finally {
    await query.close();
  }
}

/** Compares this machine's clock with the cluster's. */
function checkClock({ offsetMs }: ClusterQuery): Finding[] {
  if (offsetMs === undefined || Math.abs(offsetMs) <= CLOCK_DIFFERENCE_MAX_S * 1000) return [];
  const isRefused = offsetMs > CLOCK_AHEAD_MAX_MS;
  const detail = `the clock of this machine is ${Math.abs(offsetMs / 1000).toFixed(0)} s ${offsetMs > 0 ? 'ahead of' : 'behind'} those of the cluster`;
  const advice = isRefused
    ? 'set it by NTP: a node whose clock is so far ahead is refused as a member'
    : 'set it by NTP: pages expire by it, and a restarted node is told from its former self by the time of its start';
  return [{ subject: 'clock', state: isRefused ? 'problem' : 'warning', detail, advice }];
}

/** Asks a source as a node does, but each server of an etcd cluster separately. */
async function askSource(address: Source, configuration: Configuration): Promise<SourceAnswer> {
  const parts = address.kind === 'dns' ? [address] : address.endpoints.map((one) => ({ ...address, endpoints: [one] }));
  const answers = await Promise.all(parts.map((part) => ask(part, configuration)));
  const found = answers.find((answer) => !(answer instanceof Error) && answer.length > 0) ?? [];
  const failures = answers.flatMap((answer) => (answer instanceof Error ? answer : []));
  const isSilent = failures.length === answers.length;
  const problems = failures.map((failure): Finding => {
    const advice = adviceFor(address, failure);
    return { subject: SUBJECT, state: isSilent ? 'problem' : 'warning', detail: failure.message, advice };
  });
  return {
    found: isSilent ? [] : (found as readonly Endpoint[]),
    findings: [...(isSilent ? [] : [named(address, found as readonly Endpoint[])]), ...problems],
  };
}

/** The addresses that the source names, or why it does not answer. */
async function ask(part: Source, configuration: Configuration): Promise<readonly Endpoint[] | Error> {
  const { mapping } = configuration;
  const address = formatDiscoveryAddress(part);
  try {
    const config = sourceConfig({ ...configuration, mapping: { ...mapping, discovery_addr: address } });
    return await examineSource(config, systemEnvironment());
  } catch (error) {
    if (error instanceof CommandFailure) return error;
    const { message } = error as Error;
    return new Error(part.kind === 'dns' ? `${address}: ${message}` : message, { cause: error });
  }
}

function named(address: Source, found: readonly Endpoint[]): Finding {
  const { kind, name } = address;
  if (found.length === 0 && kind === 'dns') {
    const detail = `the name ${name} has no A, AAAA or SRV records`;
    const advice =
      'add records for the nodes; the Service of Kubernetes must be headless and set publishNotReadyAddresses, or it names only pods that are ready';
    return { subject: SUBJECT, state: 'problem', detail, advice };
  }
  if (found.length === 0) {
    const detail = `etcd answers, and no discovery master is registered below /${name}/`;
    const advice = 'start the first node, which registers; if nodes run, compare the name in their discovery_addr';
    return { subject: SUBJECT, state: 'warning', detail, advice };
  }
  const first = found.slice(0, SHOWN_MAX_COUNT).map(formatEndpoint);
  const more = found.length > first.length ? `, and ${found.length - first.length} or more others` : '';
  return { subject: SUBJECT, state: 'ok', detail: `${kind} names ${first.join(', ')}${more}` };
}

function adviceFor(address: Source, { message }: Error): string {
  const known = ADVICE.find(([words]) => words.test(message))?.[1](address);
  if (known !== undefined) return known;
  const server =
    address.kind === 'dns'
      ? 'that the name server runs and answers (`dig NAME`)'
      : 'that etcd runs and has a leader (`etcdctl endpoint health`)';
  return `check the address, a firewall, and ${server}; a node starts without an answer only if it knows its own address (local_hostname), and waits for the others`;
}
