import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { silentLogger } from '../../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { MeshCacheError } from '../../base/errors.js';
import { MeshCacheClient } from '../../client/meshcache-client.js';
import { defaultClientSocket, ownRuntimeFolder } from '../../clients/socket-path.js';
import type { CommandContext } from '../../command/context.js';
import { CommandFailure, wrongUsage } from '../../command/failure.js';
import { configOption, DISCOVERY_ADDR_HELP, decimalNumber, discoveryAddr, jsonOption } from '../../command/options.js';
import type { KeyNamespace } from '../../core/index.js';
import { localAddressOf } from '../../discovery/local-address.js';
import { systemHost } from '../../system/system-host.js';
import { type Configuration, readConfiguration, securityOf } from '../settings/configuration.js';
import { mastersOf } from '../settings/masters.js';
import { ClusterQuery } from '../status/cluster-query.js';

/** Options that tell a command which node to attach to, and which pages are meant. */
export interface AttachOptions {
  /** Path of a client socket. */
  readonly socket?: string;
  readonly discoveryAddr?: string;
  readonly config?: string;
  readonly model?: string;
  readonly dtype?: string;
  readonly layout?: string;
  readonly tag?: string;
  readonly fingerprint?: string;
  /** Seconds until a call gives up. */
  readonly timeout: number;
  readonly json: boolean;
}

export const ATTACH_HELP = `
The node is found by --socket, by MESHCACHE_SOCKET in the environment, or where \`meshcache node\` of this user has its client socket.
With --discovery-addr it is one of that cluster on this host; where none has a client socket, a node without pages of its own joins
for the time of the command. MESHCACHE_TOKEN_FILE in the environment names the file with your token, if the node has users. Keys are those of the node's own namespace, unless --model, --dtype, --layout, --tag or --fingerprint name another one.`;

/** Pool size of a node that joins only for one command. */
const PASSING_POOL = '64mb';

export function addAttachOptions(command: Command): Command {
  return command
    .option('--socket <path>', 'client socket of the node')
    .option('--discovery-addr <address>', DISCOVERY_ADDR_HELP, discoveryAddr)
    .addOption(configOption())
    .option('--model <name>', 'namespace: name of the model', wellFormed)
    .option('--dtype <name>', 'namespace: data type of the numbers', wellFormed)
    .option('--layout <name>', 'namespace: layout of the pages', wellFormed)
    .option('--tag <text>', 'namespace: any further text', wellFormed)
    .option('--fingerprint <text>', 'namespace: identity of the weights', wellFormed)
    .option('--timeout <seconds>', 'seconds until a call gives up', decimalNumber(0.001, 3600, 'seconds'), 5)
    .addOption(jsonOption());
}

/**
 * Attaches to a node while `use` runs. Throws {@link CommandFailure} if there is no node. `writes` means that pages
 * which `use` sets must stay afterwards.
 */
export async function attached<T>(
  options: AttachOptions,
  context: CommandContext,
  { writes }: { readonly writes: boolean },
  use: (client: MeshCacheClient) => Promise<T>,
): Promise<T> {
  const node = await nodeOf(options, context, writes);
  try {
    const client = await connect(node.socket, options);
    try {
      return await use(client);
    } finally {
      await client.close();
    }
  } finally {
    await node.close();
  }
}

interface FoundNode {
  readonly socket: string;
  close(): Promise<void>;
}

async function connect(
  socket: string,
  { timeout, model, dtype, layout, tag, fingerprint }: AttachOptions,
): Promise<MeshCacheClient> {
  const parts: Partial<KeyNamespace> = {
    ...(model === undefined ? {} : { modelName: model }),
    ...(dtype === undefined ? {} : { dtype }),
    ...(layout === undefined ? {} : { layout }),
    ...(tag === undefined ? {} : { tag }),
    ...(fingerprint === undefined ? {} : { fingerprint }),
  };
  const options = {
    socket,
    name: `cli-${process.pid}`,
    required: true,
    timeoutMs: timeout * 1000,
    ...(Object.keys(parts).length === 0 ? {} : { namespace: parts }),
  };
  try {
    return await MeshCacheClient.connect(options, { log: silentLogger });
  } catch (error) {
    const { message, cause } = error as Error;
    // A node that refuses has said what to do.
    const isRefused = cause instanceof MeshCacheError && (cause.code === 'ERR_REMOTE' || cause.code === 'ERR_AUTH');
    const advice = isRefused ? '' : '. Start one with `meshcache node`, or give --socket or --discovery-addr.';
    throw new CommandFailure(`${message}${advice}`, undefined, { cause: error });
  }
}

async function nodeOf(options: AttachOptions, context: CommandContext, writes: boolean): Promise<FoundNode> {
  const { socket, discoveryAddr, config } = options;
  if (socket !== undefined && discoveryAddr !== undefined) {
    throw wrongUsage('--socket and --discovery-addr cannot be used together; give one of them');
  }
  const close = async (): Promise<void> => {};
  if (socket !== undefined) return { socket, close };
  const isByDefault = discoveryAddr === undefined && config === undefined;
  const known = process.env.MESHCACHE_SOCKET || defaultClientSocket(ownRuntimeFolder());
  if (isByDefault) return { socket: known, close };
  const configuration = await readConfiguration({
    ...(config === undefined ? {} : { config }),
    ...(discoveryAddr === undefined ? {} : { discoveryAddr }),
  });
  for (const warning of configuration.warnings) context.warn(warning);
  const masters = await mastersOf(configuration);
  if (masters === undefined) return { socket: known, close };
  const found = await socketHere(configuration, masters);
  if (found !== undefined) return { socket: found, close };
  if (writes) {
    throw new CommandFailure(
      `no node of the cluster at ${masters.map(formatEndpoint).join(',')} has a client socket on this host, so a page would not stay. Start a node here with \`meshcache node\`.`,
    );
  }
  return passingNode(configuration);
}

/** The client socket of a member on this host. */
async function socketHere(configuration: Configuration, masters: readonly Endpoint[]): Promise<string | undefined> {
  const query = new ClusterQuery(securityOf(configuration));
  try {
    for (const member of await query.members(masters)) {
      if ((await localAddressOf(member.controlHost, systemHost)) === undefined) continue;
      const status = await query.status(member);
      if (!('error' in status) && status.clients !== undefined) return status.clients.socket;
    }
    return undefined;
  } finally {
    await query.close();
  }
}

/** A node that is a member only while the command runs. */
async function passingNode({ mapping }: Configuration): Promise<FoundNode> {
  // A call that finds a node on its host needs nothing of this.
  const { MeshCacheStore } = await import('../../node/meshcache-store.js');
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-'));
  const socket = join(folder, 'node.sock');
  const store = await MeshCacheStore.create(
    {
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      extraConfig: {
        ...mapping,
        global_segment_size: PASSING_POOL,
        disk_enabled: false,
        metrics_enabled: false,
        node_id: null,
        client_socket: socket,
        // The node owns a part of the directory at once, and must first be told its content.
        wait_for_directory: true,
      },
    },
    { log: silentLogger },
  ).catch(async (error: unknown) => {
    await rm(folder, { recursive: true, force: true });
    throw error;
  });
  return {
    socket,
    async close() {
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function wellFormed(text: string): string {
  if (text.isWellFormed()) return text;
  throw new InvalidArgumentError('Allowed is well-formed text.');
}
