import { formatSize } from '../../base/sizes.js';
import { formatCount, formatPairs, formatShare, formatTable } from '../../command/table.js';
import type { Violation } from '../../sim/check/violations.js';
import type { ScenarioResult } from '../../sim/run/run-scenario.js';
import type { SimClusterRun } from './cluster.js';

/** Violations of one run that are shown. */
const SHOWN_COUNT = 10;

/** The text that the command prints about one run. */
export function formatSimCluster(
  { scenario, result, wallS }: SimClusterRun,
  { withLog }: { readonly withLog: boolean },
): string {
  const { nodes, workload, faults } = scenario;
  const { counts, hash, events, virtualMs, violationsCount, violations, recovery, log } = result;
  const { local, remote, disk } = counts.hits;
  const read = local + remote + disk;
  const calls = Object.entries(counts.calls).map(([kind, count]) => `${formatCount(count)} ${kind}`);
  const pairs: [string, string][] = [
    ['scenario', `seed ${scenario.seed}, ${nodes} nodes, ${workload.kind}, ${faults.length} faults`],
    [
      'time',
      `${(virtualMs / 1000).toFixed(3)} virtual seconds, ${formatCount(events)} events in ${wallS.toFixed(2)} s`,
    ],
    ['hash', hash],
    ['calls', calls.join(', ')],
    [
      'reads',
      `${formatCount(counts.readsChecked)} checked; ${formatShare(local, read)} local, ${formatShare(remote, read)} remote, ${formatShare(disk, read)} disk; ${formatCount(counts.misses)} misses`,
    ],
  ];
  if (result.distances !== null) {
    const { pages, keys } = result.distances;
    const leaving = ({ host, zone, other }: typeof pages): string => formatShare(other, host + zone + other);
    pairs.push(['leave their zone', `${leaving(pages)} of remote reads, ${leaving(keys)} of directory lookups`]);
  }
  if (counts.requests.count > 0) {
    const { count, asked, found } = counts.requests;
    pairs.push(['requests', `${formatCount(count)}, prefix hit rate ${(asked === 0 ? 0 : found / asked).toFixed(4)}`]);
  }
  if (recovery !== null) {
    const shown = (time: number | null) => (time === null ? 'not' : `after ${(time / 1000).toFixed(3)} s`);
    pairs.push([
      'recovery',
      `members known ${shown(recovery.membersMs)}, ${recovery.pages} pages found everywhere ${shown(recovery.foundMs)}`,
    ]);
  }
  pairs.push(['violations', String(violationsCount)]);
  const parts = [formatPairs(pairs), formatTable(trafficRows(result))];
  if (violations.length > 0) parts.push(formatViolations(violations, SHOWN_COUNT));
  for (const [key, story] of withLog ? Object.entries(result.stories) : [])
    parts.push(`${key}\n  ${story.join('\n  ')}`);
  if (withLog) parts.push(log.join('\n'));
  return parts.join('\n\n');
}

/** The first violations, each with its virtual time. */
export function formatViolations(violations: readonly Violation[], maxCount: number): string {
  return violations
    .slice(0, maxCount)
    .map(
      ({ kind, rule, atMs, node, detail }) =>
        `  ${(atMs / 1000).toFixed(6)}s node ${node} ${kind} ${rule}: ${detail.split('\n')[0]}`,
    )
    .join('\n');
}

/** Properties of a random scenario that were given and not drawn. */
export interface GivenOfChance {
  readonly nodes?: number;
  readonly duration?: number;
  readonly faults: readonly string[];
}

/** The given properties as words of a command line. */
export function wordsOf({ nodes, duration, faults }: GivenOfChance): string[] {
  return [
    ...(nodes === undefined ? [] : ['--nodes', `${nodes}`]),
    ...(duration === undefined ? [] : ['--duration', `${duration}`]),
    ...(faults.length === 0 ? [] : ['--faults', faults.join(',')]),
  ];
}

/** A line about a failed seed, with the command that replays it. */
export function seedLine(
  seed: number,
  { violationsCount, hash }: Pick<ScenarioResult, 'violationsCount' | 'hash'>,
  given: GivenOfChance,
): string {
  const command = ['meshcache sim cluster --random --seed', seed, ...wordsOf(given)].join(' ');
  return `seed ${seed}: ${violationsCount} violations, hash ${hash}: ${command}`;
}

function trafficRows({ traffic }: ScenarioResult): Record<string, string | number>[] {
  const hosts = new Map<string, Record<string, string | number>>();
  for (const { host, plane, messages, bytes } of traffic) {
    const row = hosts.get(host) ?? { host };
    row[`${plane} messages`] = messages;
    row[`${plane} sent`] = formatSize(bytes);
    hosts.set(host, row);
  }
  return [...hosts.values()];
}
