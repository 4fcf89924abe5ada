import { Command } from 'commander';
import { within } from '../../base/environment/clock.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { compareNames } from '../../base/names.js';
import { type CommandContext, CommandFailure, printResult, wrongUsage } from '../../command/context.js';
import { configOption, DISCOVERY_ADDR_HELP, discoveryAddr, jsonOption } from '../../command/options.js';
import type { SecurityConfig } from '../../net/credentials/secured-environment.js';
import { localAddressOf } from '../../net/loopback.js';
import { ringShares } from '../../node/reporting/ring-shares.js';
import { systemClock } from '../../system/system-clock.js';
import { systemHost } from '../../system/system-host.js';
import { readConfiguration, securityOf } from '../settings/configuration.js';
import { mastersOf } from '../settings/endpoints.js';
import { ClusterQuery } from './cluster-query.js';
import { type NodeAnswer, nodeRow, type StatusResult, statusResult } from './status-report.js';
import { formatStatus } from './status-text.js';

const DEFAULT_VNODES = 160;
const WATCH_INTERVAL_MS = 2_000;
const WATCH_HINT = `refreshed every ${WATCH_INTERVAL_MS / 1000} s; Ctrl-C ends it`;

interface StatusOptions {
  readonly discoveryAddr?: string;
  readonly config?: string;
  readonly watch: boolean;
  readonly json: boolean;
}

/** The members according to all masters that answer, each with its report about itself. */
export async function clusterStatus(
  masters: readonly Endpoint[],
  security: SecurityConfig = {},
): Promise<StatusResult> {
  const query = new ClusterQuery(security);
  try {
    return await statusBy(query, masters);
  } finally {
    await query.close();
  }
}

export function statusCommand(context: CommandContext): Command {
  return new Command('status')
    .description('show what a running cluster does: prefix hits, throughput, lost nodes; then each member')
    .option('--discovery-addr <address>', DISCOVERY_ADDR_HELP, discoveryAddr)
    .addOption(configOption())
    .option('--watch', 'refresh every 2 seconds until Ctrl-C, in place on a terminal', false)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache status --discovery-addr 10.0.0.1:31990
  meshcache status --discovery-addr 10.0.0.1:31990,10.0.0.2:31990 --json
  meshcache status --config node.json --watch

Rates and p99 are of the last seconds, from nodes with a metrics server; counts are since a node started. hits: pages asked for
that the cluster had from the first on without a gap; of a client that only reads, pages it read. lifetime: how long a page stays
in the pool. loop p99: how late the event loop of the node runs. Lost nodes stopped without a good-bye in the last day, left ones
said good-bye in the last hour. A terminal with more columns shows more of them; --json has everything. Clients of one namespace
share pages: namespaces that differ in one fact only are told.

Without --discovery-addr the address is taken from MESHCACHE_DISCOVERY_ADDR in the environment, then from the file.
Ends with status 1 when no discovery master answers; a member that does not is shown as unreachable.`,
    )
    .action(async (options: StatusOptions) => {
      if (options.watch && options.json) throw wrongUsage('--watch prints text; leave it or --json out');
      const { masters, security } = await whomToAsk(options, context);
      if (options.watch) return watchStatus(masters, security, context);
      const progress = context.progress();
      progress.update('asking the discovery master and the nodes');
      const result = await clusterStatus(masters, security).finally(() => progress.end());
      printResult(context, result, { json: options.json, asText: (shown) => formatStatus(shown, context) });
    });
}

async function whomToAsk(
  options: StatusOptions,
  context: CommandContext,
): Promise<{ readonly masters: readonly Endpoint[]; readonly security: SecurityConfig }> {
  const { config, discoveryAddr } = options;
  const configuration = await readConfiguration({
    ...(config === undefined ? {} : { config }),
    ...(discoveryAddr === undefined ? {} : { discoveryAddr }),
  });
  for (const warning of configuration.warnings) context.warn(warning);
  const masters = await mastersOf(configuration);
  if (masters !== undefined) return { masters, security: securityOf(configuration) };
  throw wrongUsage(
    '--discovery-addr is missing; give it here, as MESHCACHE_DISCOVERY_ADDR in the environment, or as discovery_addr in the file of --config',
  );
}

/**
 * Refreshes the status until the signal of `context` is aborted: in place on a terminal, which keeps the last one, else
 * one below the other. After the first attempt, a {@link CommandFailure} is shown instead of thrown.
 */
async function watchStatus(
  masters: readonly Endpoint[],
  security: SecurityConfig,
  context: CommandContext,
): Promise<void> {
  const { screen, signal, clock } = context;
  const aborted = new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  const query = new ClusterQuery(security);
  let last = '';
  try {
    for (let isFirst = true; !signal.aborted; isFirst = false) {
      const text = statusBy(query, masters).then(
        (result) => formatStatus(result, { columns: context.columns, paint: context.paint, isBrief: true }),
        (error: unknown) => {
          if (isFirst || !(error instanceof CommandFailure)) throw error;
          return error.message;
        },
      );
      const shown = await Promise.race([text, aborted]);
      if (shown === undefined) break;
      last = `${new Date(clock.wallMs()).toISOString()}  ${shown}`;
      if (screen === undefined) context.print(`${last}\n`);
      else screen.draw(`${last}\n\n${context.paint('faint', WATCH_HINT)}`);
      await within(clock, WATCH_INTERVAL_MS, aborted);
    }
  } finally {
    screen?.close();
    if (screen !== undefined && last !== '') context.print(last);
    await query.close();
  }
}

async function statusBy(query: ClusterQuery, masters: readonly Endpoint[]): Promise<StatusResult> {
  const members = await query.members(masters);
  members.sort((a, b) => compareNames(a.nodeId, b.nodeId));
  const answers = await Promise.all(members.map((member) => query.status(member)));
  const nodeIds = members.map((member) => member.nodeId);
  const shares = ringShares(nodeIds, vnodesOf(answers));
  const nodes = await Promise.all(
    members.map(async (member, i) => {
      const isHere = (await localAddressOf(member.controlHost, systemHost)) !== undefined;
      return nodeRow(member, answers[i] as NodeAnswer, { ringShare: shares.get(member.nodeId) ?? 0, isHere });
    }),
  );
  return statusResult(nodes, { discoveryAddr: masters.map(formatEndpoint).join(','), timeMs: systemClock.wallMs() });
}

function vnodesOf(answers: readonly NodeAnswer[]): number {
  for (const answer of answers) if ('vnodes' in answer && answer.vnodes !== undefined) return answer.vnodes;
  return DEFAULT_VNODES;
}
