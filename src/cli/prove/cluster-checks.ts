import { formatSize } from '../../base/sizes.js';
import { packageVersion } from '../../node/reporting/package-version.js';
import type { NodeInfo } from '../../types.js';
import { type Configuration, securityOf } from '../settings/configuration.js';
import { mastersOf } from '../settings/endpoints.js';
import { ClusterQuery } from '../status/cluster-query.js';
import { failedTrip, provenTrips, withNodes } from './own-nodes.js';
import { failed, notRun, passed, type Step, type Verdict } from './proof.js';

const AREA = 'Cluster';
const PAGE_BYTES = 64 * 2 ** 10;
const PAGES = 500;
/** The namespace of the pages that the nodes of this command set; no engine has it. */
const NAMESPACE = 'meshcache-prove';
const ADVICE =
  'check the address, the secret (MESHCACHE_CLUSTER_SECRET_FILE) or certificates, and the firewall between the hosts';
/** Seconds between the clocks of two machines above which NTP cannot be working. */
const CLOCK_DIFFERENCE_MAX_S = 1;
/** Keys of the configuration that concern the pages and files of the user's own node. */
const OWN_KEYS =
  /^(global_segment_size|node_id|disk_.*|pool_path|object_store_.*|client_.*|resp_.*|metrics_.*|.*_port|role|write_policy|namespace_.*|fingerprint)$/;

/** An existing cluster: what each member says, and pages between two nodes that join for the time of the check. */
export function clusterSteps(configuration: Configuration, signal: AbortSignal): Step[] {
  const step = (check: string, run: () => Promise<Verdict>): Step => ({ area: AREA, check, advice: ADVICE, run });
  if (configuration.mapping.discovery_addr === undefined) {
    const advice = 'give --discovery-addr to look at a cluster, and to read and write through it';
    return [step('an existing cluster', async () => notRun('no discovery_addr is given', advice))];
  }
  let isSound = false;
  return [
    step('every member answers', async () => {
      const verdict = await membersAnswer(configuration);
      isSound = verdict.outcome === 'passed';
      return verdict;
    }),
    step(`pages of ${formatSize(PAGE_BYTES)} through the cluster`, async () => {
      if (!isSound) return notRun('a member is not as it should be; see the check before', ADVICE);
      return pagesThrough(configuration, signal);
    }),
  ];
}

async function membersAnswer(configuration: Configuration): Promise<Verdict> {
  const query = new ClusterQuery(securityOf(configuration));
  try {
    const masters = (await mastersOf(configuration)) ?? [];
    const members = await query.members(masters);
    const seen = await Promise.all(members.map((member) => lookAt(member, query)));
    const doubts = seen.flatMap((each) => each.doubts);
    const advice =
      'meshcache status has more about each node; a node that has just been lost leaves the list by itself';
    if (doubts.length > 0) return failed(doubts.join('; '), advice, { members: members.length });
    const [first, ...others] = seen.flatMap(({ overTcp }) => overTcp ?? []);
    const more = others.length === 0 ? '' : ` (${others.length} more do)`;
    const transports = first === undefined ? '' : `; ${first}${more}`;
    const text = `${members.length} members, all of version ${packageVersion()}${transports}`;
    return passed(text, { members: members.length, over_tcp: first === undefined ? 0 : others.length + 1 });
  } finally {
    await query.close();
  }
}

interface Look {
  /** What is wrong with a member, in words. */
  readonly doubts: readonly string[];
  /** Why the member reads over TCP although it is configured for RDMA, in words. */
  readonly overTcp?: string;
}

async function lookAt(member: NodeInfo, query: ClusterQuery): Promise<Look> {
  const { nodeId } = member;
  const status = await query.status(member);
  if ('error' in status) return { doubts: [`${nodeId} does not answer: ${String(status.error)}`] };
  const { version = 'unknown', unreachable = [], clock_offset_s: offsetS = 0, transport } = status;
  const doubts: string[] = [];
  if (version !== packageVersion())
    doubts.push(`${nodeId} is of version ${version}, this command of ${packageVersion()}`);
  if (unreachable.length > 0) doubts.push(`${nodeId} cannot read the pages of ${unreachable.join(', ')}`);
  if (Math.abs(offsetS) > CLOCK_DIFFERENCE_MAX_S) {
    doubts.push(`the clock of ${nodeId} is ${offsetS.toFixed(1)} s off those of the cluster`);
  }
  if (transport?.wanted !== 'rdma' || status.data_protocol !== 'tcp') return { doubts };
  return { doubts, overTcp: `${nodeId} reads over TCP: ${transport.reason}` };
}

/** Pages of two nodes that join; all members own a part of the directory of these pages. */
function pagesThrough({ mapping }: Configuration, signal: AbortSignal): Promise<Verdict> {
  const given = Object.fromEntries(Object.entries(mapping).filter(([key]) => !OWN_KEYS.test(key)));
  const config = { local_hostname: null, allow_unauthenticated: false, ...given, namespace: NAMESPACE };
  const discoveryAddr = String(mapping.discovery_addr);
  return withNodes({ nodes: 2, pageBytes: PAGE_BYTES, config, discoveryAddr, signal }, async (cluster) => {
    const { trip, isComplete } = await provenTrips(cluster, PAGES);
    if (!isComplete) return failedTrip(trip, PAGE_BYTES);
    return passed(`${PAGES} pages each way, every byte right, in the namespace ${NAMESPACE}`, { pages: PAGES });
  });
}
