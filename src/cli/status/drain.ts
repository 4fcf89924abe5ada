import { Command } from 'commander';
import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { MeshCacheError } from '../../base/errors.js';
import { DRAIN_TIMEOUT_MAX_MS, DRAIN_TIMEOUT_MS } from '../../base/limits.js';
import { type CommandContext, CommandFailure, printResult, wrongUsage } from '../../command/context.js';
import { configOption, DISCOVERY_ADDR_HELP, decimalNumber, discoveryAddr, jsonOption } from '../../command/options.js';
import { printable } from '../../command/table.js';
import type { DrainProgress } from '../../node/leaving/drain.js';
import { type Configuration, readConfiguration, securityOf } from '../settings/configuration.js';
import { mastersOf } from '../settings/endpoints.js';
import { readToken, tokenOption } from '../settings/token.js';
import { ClusterQuery, type DrainOrder } from './cluster-query.js';

const POLL_MS = 100;
/** How long a leaving node may take to linger, close and end, in milliseconds. */
const END_TIMEOUT_MS = 15_000;
/** Milliseconds after which a node that has left but still answers must belong to a program that goes on. */
const EXIT_GRACE_MS = 6_000;

export interface DrainResult extends Omit<DrainProgress, 'state' | 'disk_queue_bytes'> {
  readonly control_endpoint: string;
  /** False if the node has left but its program keeps running. */
  readonly has_ended: boolean;
  readonly seconds: number;
}

interface DrainOptions {
  readonly discoveryAddr?: string;
  readonly config?: string;
  /** Most seconds for handing over pages. */
  readonly timeout: number;
  readonly tokenFile?: string;
  readonly json: boolean;
}

export function drainCommand(context: CommandContext): Command {
  return new Command('drain')
    .description('take a node out of its cluster: it hands over pages that others read, leaves, and ends')
    .argument('<node>', 'id of the node, or host:port of its control endpoint, as `meshcache status` shows them')
    .option('--discovery-addr <address>', DISCOVERY_ADDR_HELP, discoveryAddr)
    .addOption(configOption())
    .option(
      '--timeout <seconds>',
      'the longest time in seconds that the node hands pages over before it leaves',
      decimalNumber(0, DRAIN_TIMEOUT_MAX_MS / 1000, 'seconds'),
      DRAIN_TIMEOUT_MS / 1000,
    )
    .addOption(tokenOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache drain node-3f9c2a71d05be846 --discovery-addr 10.0.0.1:31990
  meshcache drain 10.0.0.3:40123 --timeout 120
  meshcache drain node-3f9c2a71d05be846 --config node.json --json

A draining node publishes nothing. Pages that other nodes have recently read there are copied to other nodes, and writes that
wait for its disk are finished. Then it leaves the cluster, and serves late readers for one more heartbeat interval.
\`meshcache node\` then ends with status 0. The promise \`store.drained\` tells a program of your own, which ends by itself.
With a cluster secret the command needs it, too: MESHCACHE_CLUSTER_SECRET, or cluster_secret_file in the file. Where the node
has a users_file, the command needs the token of a user who may drain.
Ends with status 1 if there is no such node, if it does not answer, or if it ends before it has left.`,
    )
    .action(async (node: string, options: DrainOptions) => {
      const { discoveryAddr, config } = options;
      const configuration = await readConfiguration({
        ...(config === undefined ? {} : { config }),
        ...(discoveryAddr === undefined ? {} : { discoveryAddr }),
      });
      for (const warning of configuration.warnings) context.warn(warning);
      const query = new ClusterQuery(securityOf(configuration));
      try {
        const endpoint = await endpointOf(node, configuration, query);
        const order = { timeoutMs: options.timeout * 1000, token: await readToken(options.tokenFile) };
        const result = await new Draining(query, endpoint, context).run(order);
        printResult(context, result, { json: options.json, asText: formatResult });
      } finally {
        await query.close();
      }
    });
}

/** The control endpoint of the node that is to drain. Throws {@link CommandFailure}. */
async function endpointOf(node: string, configuration: Configuration, query: ClusterQuery): Promise<Endpoint> {
  const endpoint = parseEndpoint(node);
  if (endpoint !== undefined && endpoint.port > 0) return endpoint;
  const masters = await mastersOf(configuration);
  if (masters === undefined) {
    throw wrongUsage(
      `--discovery-addr is missing: the address of node ${JSON.stringify(node)} is asked for there; give it here, as MESHCACHE_DISCOVERY_ADDR in the environment, or as discovery_addr in the file of --config; or give host:port of the node`,
    );
  }
  const members = await query.members(masters);
  const member = members.find(({ nodeId }) => nodeId === node);
  if (member !== undefined) return { host: member.controlHost, port: member.controlPort };
  const known = members.map(({ nodeId }) => nodeId).join(', ');
  throw new CommandFailure(`no node ${JSON.stringify(node)} in the cluster; its members are ${known || 'none'}`);
}

/** Follows the draining of one node from the order to its end. */
class Draining {
  readonly #query: ClusterQuery;
  readonly #endpoint: Endpoint;
  readonly #context: CommandContext;

  constructor(query: ClusterQuery, endpoint: Endpoint, context: CommandContext) {
    this.#query = query;
    this.#endpoint = endpoint;
    this.#context = context;
  }

  /** Drains the node. Throws {@link CommandFailure}. */
  async run(order: DrainOrder): Promise<DrainResult> {
    const { timeoutMs } = order;
    const { clock, signal } = this.#context;
    const startMs = clock.nowMs();
    const untilMs = startMs + timeoutMs + END_TIMEOUT_MS;
    const progress = this.#context.progress();
    let last: DrainProgress | undefined;
    let drainedMs: number | undefined;
    try {
      while (clock.nowMs() < untilMs) {
        if (signal.aborted) throw signal.reason;
        const answer = await this.#ask(order, last);
        if (answer === undefined) return this.#result(last as DrainProgress, { hasEnded: true, startMs });
        last = answer;
        progress.update(formatProgress(last));
        if (last.state === 'drained') drainedMs ??= clock.nowMs();
        if (drainedMs !== undefined && clock.nowMs() - drainedMs > EXIT_GRACE_MS) {
          return this.#result(last, { hasEnded: false, startMs });
        }
        await new Promise<void>((resolve) => {
          clock.after(POLL_MS, resolve, { keepAlive: true });
        });
      }
    } finally {
      progress.end();
    }
    const name = last?.node_id ?? formatEndpoint(this.#endpoint);
    throw new CommandFailure(`node ${name} has not left within ${(untilMs - startMs) / 1000} s; it is still draining`);
  }

  /** Asks for the progress; undefined if the node had begun to leave and no longer answers. */
  async #ask(order: DrainOrder, last: DrainProgress | undefined): Promise<DrainProgress | undefined> {
    try {
      return await this.#query.drain(this.#endpoint, order);
    } catch (error) {
      const isGone =
        error instanceof MeshCacheError && (error.code === 'ERR_UNREACHABLE' || error.code === 'ERR_CLOSED');
      if (isGone && (last?.state === 'leaving' || last?.state === 'drained')) return undefined;
      // A node that is too busy to answer in time is asked again.
      if (last !== undefined && error instanceof MeshCacheError && error.code === 'ERR_TIMEOUT') return last;
      const where = formatEndpoint(this.#endpoint);
      const { message } = error as Error;
      const reason = message.startsWith(where) ? message : `${where}: ${message}`;
      if (last === undefined)
        throw new CommandFailure(`the node cannot be drained: ${reason}`, undefined, { cause: error });
      throw new CommandFailure(`node ${last.node_id} ended or was cut off before it had left: ${reason}`);
    }
  }

  #result(last: DrainProgress, { hasEnded, startMs }: { hasEnded: boolean; startMs: number }): DrainResult {
    return {
      node_id: last.node_id,
      control_endpoint: formatEndpoint(this.#endpoint),
      wanted_pages: last.wanted_pages,
      handed_pages: last.handed_pages,
      left_pages: last.left_pages,
      has_ended: hasEnded,
      seconds: (this.#context.clock.nowMs() - startMs) / 1000,
    };
  }
}

export function formatProgress({
  state,
  node_id,
  wanted_pages,
  handed_pages,
  disk_queue_bytes,
}: DrainProgress): string {
  const what: Readonly<Record<string, string>> = {
    handing_over: `${handed_pages} of ${wanted_pages} pages handed over`,
    writing: `${disk_queue_bytes} bytes waiting for its disk`,
    leaving: 'leaving',
    drained: 'left',
  };
  return printable(`node ${node_id}: ${what[state] ?? state}`);
}

function formatResult(result: DrainResult): string {
  const { node_id, wanted_pages, handed_pages, left_pages, has_ended, seconds } = result;
  const lines = [
    `node ${printable(node_id)} has left its cluster${has_ended ? ' and ended' : '; its program goes on'} (${seconds.toFixed(1)} s)`,
    wanted_pages === 0
      ? 'no recently read pages to hand over'
      : `${handed_pages} of ${wanted_pages} pages that others recently read there were handed over`,
  ];
  if (left_pages > 0) lines.push(`${left_pages} of them were not handed over, for lack of room or time`);
  return lines.join('\n');
}
