import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { CLOCK_AHEAD_MAX_MS } from '../../base/limits.js';
import { type DiscoveryAddress, parseDiscoveryAddress } from '../../base/settings/discovery-address.js';
import { type Configuration, securityOf } from '../settings/configuration.js';
import { ClusterQuery, NoMasterFailure } from '../status/cluster-query.js';
import { checkSilentDiscovery, unauthenticatedAtDiscovery } from './configuration.js';
import { askSource } from './discovery-source.js';
import type { Check, Finding } from './finding.js';

/** Addresses of a source that are tried. */
const TRIED_MAX_COUNT = 3;
/** Difference between the clocks of two machines above which NTP cannot be at work. */
const CLOCK_DIFFERENCE_MAX_S = 1;

/** Checks of the discovery addresses of a configuration, or of the source that names them; none without a valid address. */
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

/** Compares the clock of this machine with the date of the cluster. */
function checkClock({ offsetMs }: ClusterQuery): Finding[] {
  if (offsetMs === undefined || Math.abs(offsetMs) <= CLOCK_DIFFERENCE_MAX_S * 1000) return [];
  const isRefused = offsetMs > CLOCK_AHEAD_MAX_MS;
  const detail = `the clock of this machine is ${Math.abs(offsetMs / 1000).toFixed(0)} s ${offsetMs > 0 ? 'ahead of' : 'behind'} those of the cluster`;
  const advice = isRefused
    ? 'set it by NTP: a node whose clock is so far ahead is refused as a member'
    : 'set it by NTP: pages expire by it, and a restarted node is told from its former self by the time of its start';
  return [{ subject: 'clock', state: isRefused ? 'problem' : 'warning', detail, advice }];
}
