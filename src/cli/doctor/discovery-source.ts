import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { type DiscoveryAddress, formatDiscoveryAddress } from '../../base/settings/discovery-address.js';
import { CommandFailure } from '../../command/failure.js';
import { examineSource } from '../../discovery/sources/open-source.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { Configuration } from '../settings/configuration.js';
import { sourceConfig } from '../settings/masters.js';
import type { Finding } from './finding.js';

/** Addresses that are shown. */
const SHOWN_MAX_COUNT = 3;
const SUBJECT = 'discovery source';

type Source = Exclude<DiscoveryAddress, { readonly kind: 'list' }>;

/** What a source answers, for the doctor: the addresses that it names, and findings about it. */
export interface SourceAnswer {
  readonly found: readonly Endpoint[];
  readonly findings: readonly Finding[];
}

/** Asks a source as a node does; each server of an etcd by itself. */
export async function askSource(address: Source, configuration: Configuration): Promise<SourceAnswer> {
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

/** What the source names, or why it does not answer. */
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

/** Words of an error, and what to do then. */
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

function adviceFor(address: Source, { message }: Error): string {
  const known = ADVICE.find(([words]) => words.test(message))?.[1](address);
  if (known !== undefined) return known;
  const server =
    address.kind === 'dns'
      ? 'that the name server runs and answers (`dig NAME`)'
      : 'that etcd runs and has a leader (`etcdctl endpoint health`)';
  return `check the address, a firewall, and ${server}; a node starts without an answer only if it knows its own address (local_hostname), and waits for the others`;
}
