import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { silentLogger } from '../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../base/environment/network.js';
import { MeshCacheError } from '../base/errors.js';
import { PAGE_MAX_BYTES } from '../base/limits.js';
import { FINGERPRINT, FINGERPRINT_ALLOWED } from '../base/settings/fields.js';
import { formatSize } from '../base/sizes.js';
import { MeshCacheClient } from '../client/meshcache-client.js';
import { defaultClientSocket, ownRuntimeFolder } from '../clients/socket-path.js';
import { type CommandContext, CommandFailure, EXIT_FAILURE, printResult, wrongUsage } from '../command/context.js';
import {
  configOption,
  DISCOVERY_ADDR_HELP,
  decimalNumber,
  discoveryAddr,
  jsonOption,
  wholeNumber,
} from '../command/options.js';
import { formatTable, printable } from '../command/table.js';
import type { KeyNamespace } from '../core/index.js';
import { localAddressOf } from '../net/loopback.js';
import { systemFiles } from '../system/files/system-files.js';
import { systemHost } from '../system/system-host.js';
import { type Configuration, readConfiguration, securityOf } from './settings/configuration.js';
import { mastersOf } from './settings/endpoints.js';
import { ClusterQuery } from './status/cluster-query.js';

/* Commands for trying out a cluster. Each attaches to the node of this host, does one thing, and ends. */

const PINGS_MAX_COUNT = 1_000_000;

export function pingCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('ping'))
    .description('check whether the node of this host answers, and how fast')
    .option('-n, --count <count>', 'number of pings', wholeNumber(1, PINGS_MAX_COUNT), 1)
    .addHelpText('after', examples(['meshcache ping', 'meshcache ping --socket /run/meshcache/node.sock -n 1000']))
    .action((options: AttachOptions & { readonly count: number }) =>
      attached(options, context, { writes: false }, async (client) => {
        const times: number[] = [];
        for (let i = 0; i < options.count && !context.signal.aborted; i++) {
          const startMs = context.clock.nowMs();
          if (!(await client.ping())) throw new CommandFailure('the node does not answer');
          times.push(context.clock.nowMs() - startMs);
        }
        times.sort((a, b) => a - b);
        const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
        const { nodeId } = await client.stats();
        const result = { node_id: nodeId, pings: times.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
        printResult(context, result, {
          json: options.json,
          asText: ({ p50_ms, p99_ms, max_ms }) =>
            `${printable(nodeId)} answers: ${times.length === 1 ? ms(p50_ms) : `p50 ${ms(p50_ms)}, p99 ${ms(p99_ms)}, max ${ms(max_ms)}`}`,
        });
      }),
    );
}

export function putCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('put'))
    .description('set a page: the bytes of a file, or of stdin')
    .argument('<key>', 'key of the page')
    .argument('[file]', 'file with the bytes; - or nothing: stdin')
    .option('--text <text>', 'use this text as the page')
    .addHelpText(
      'after',
      examples(['meshcache put greeting --text hello', 'meshcache put page-1 page.bin', 'date | meshcache put now']),
    )
    .action(async (key: string, file: string | undefined, options: AttachOptions & { readonly text?: string }) => {
      const bytes = await pageOf(file, options.text);
      await attached(options, context, { writes: true }, async (client) => {
        if (!(await client.set(key, bytes))) {
          throw new CommandFailure(
            'the page was not set: no room in the pool, or the node or the directory does not answer',
          );
        }
        const result = { key, bytes: bytes.length };
        printResult(context, result, {
          json: options.json,
          asText: () => `${printable(key)}: ${formatSize(bytes.length)} set`,
        });
      });
    });
}

export function getCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('get'))
    .description('read a page, to stdout or into a file; ends with status 1 on a miss')
    .argument('<key>', 'key of the page')
    .argument('[file]', 'file for the bytes; - or nothing: stdout')
    .addHelpText('after', examples(['meshcache get greeting', 'meshcache get page-1 page.bin']))
    .action((key: string, file: string | undefined, options: AttachOptions) =>
      attached(options, context, { writes: false }, async (client) => {
        const page = await client.get(key);
        if (page === null) throw new CommandFailure(`${key}: not found`);
        const isToStdout = file === undefined || file === '-';
        if (!isToStdout) await systemFiles.writeFile(file, page).catch(fileFailure);
        else if (!options.json) await written(page);
        if (isToStdout && !options.json) return;
        const result = {
          key,
          bytes: page.length,
          ...(isToStdout ? { base64: Buffer.from(page).toString('base64') } : {}),
        };
        printResult(context, result, {
          json: options.json,
          asText: () => `${printable(key)}: ${formatSize(page.length)} written to ${printable(file ?? '')}`,
        });
      }),
    );
}

export function existsCommand(context: CommandContext): Command {
  return keysCommand('exists', context, {
    description: 'see which pages are there; ends with status 1 when one is not',
    words: ['there', 'not there'],
    ask: async (client, keys) => Promise.all(keys.map((key) => client.exists(key))),
  });
}

export function deleteCommand(context: CommandContext): Command {
  return keysCommand('delete', context, {
    description: 'take pages away everywhere; ends with status 1 when a node has not answered',
    words: ['deleted', 'not everywhere: a node has not answered, and is told again'],
    ask: (client, keys) => client.delete(keys),
  });
}

export function statCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('stat'))
    .description('show which nodes hold pages, where and of which size; ends with status 1 if a page is nowhere')
    .argument('<keys...>', 'keys of the pages')
    .addHelpText('after', examples(['meshcache stat greeting', 'meshcache stat page-1 page-2 --json']))
    .action((keys: string[], options: AttachOptions) =>
      attached(options, context, { writes: false }, async (client) => {
        const found = await client.stat(keys);
        const result = keys.map((key, i) => ({
          key,
          length: found[i]?.length ?? null,
          holders: found[i]?.holders ?? [],
        }));
        if (found.includes(null)) context.setExitStatus(EXIT_FAILURE);
        printResult(context, result, {
          json: options.json,
          asText: (pages) =>
            formatTable(
              pages.flatMap(({ key, length, holders }) => {
                const page = { key: printable(key), size: length === null ? 'a miss' : formatSize(length) };
                if (holders.length === 0) return [{ ...page, node: '-', tier: '-' }];
                return holders.map(({ node_id, tier }) => ({ ...page, node: printable(node_id), tier }));
              }),
            ),
        });
      }),
    );
}

function keysCommand(
  name: string,
  context: CommandContext,
  given: {
    readonly description: string;
    readonly words: readonly [string, string];
    readonly ask: (client: MeshCacheClient, keys: string[]) => Promise<boolean[]>;
  },
): Command {
  return addAttachOptions(new Command(name))
    .description(given.description)
    .argument('<keys...>', 'keys of the pages')
    .addHelpText('after', examples([`meshcache ${name} greeting`, `meshcache ${name} page-1 page-2 --json`]))
    .action((keys: string[], options: AttachOptions) =>
      attached(options, context, { writes: false }, async (client) => {
        const results = await given.ask(client, keys);
        if (results.includes(false)) context.setExitStatus(EXIT_FAILURE);
        const result = Object.fromEntries(keys.map((key, i) => [key, results[i] === true]));
        printResult(context, result, {
          json: options.json,
          asText: () =>
            keys.map((key, i) => `${printable(key)}: ${given.words[results[i] === true ? 0 : 1]}`).join('\n'),
        });
      }),
    );
}

async function pageOf(file: string | undefined, text: string | undefined): Promise<Uint8Array> {
  if (text !== undefined && file !== undefined)
    throw wrongUsage('a file and --text cannot be used together; give one of them');
  const bytes = text !== undefined ? Buffer.from(text) : await fileBytes(file);
  if (bytes.length > 0 && bytes.length <= PAGE_MAX_BYTES) return bytes;
  throw wrongUsage(`a page of ${bytes.length} bytes; allowed are 1 to ${formatSize(PAGE_MAX_BYTES)}`);
}

async function fileBytes(file: string | undefined): Promise<Buffer> {
  if (file !== undefined && file !== '-') return systemFiles.readFile(file).catch(fileFailure);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    // Input that is too long is not read to the end, because it may be endless.
    if (bytes > PAGE_MAX_BYTES) break;
  }
  return Buffer.concat(chunks);
}

function fileFailure(error: Error): never {
  throw new CommandFailure(error.message, undefined, { cause: error });
}

function written(bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

function ms(milliseconds: number): string {
  return `${milliseconds.toFixed(3)} ms`;
}

function examples(lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}\n${ATTACH_HELP}`;
}

/** Options that select the node to attach to and the namespace of the pages. */
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
  /** Seconds after which a call gives up. */
  readonly timeout: number;
  readonly json: boolean;
}

export const ATTACH_HELP = `
The node is found by --socket, by MESHCACHE_SOCKET in the environment, or where \`meshcache node\` of this user has its client socket.
With --discovery-addr it is one of that cluster on this host; where none has a client socket, a node without pages of its own joins
for the time of the command. MESHCACHE_TOKEN_FILE in the environment names the file with your token, if the node has users. Keys are those of the node's own namespace, unless --model, --dtype, --layout, --tag or --fingerprint name another one.`;

/** Pool size of a node that joins for one command only. */
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
 * Attaches to a node while `use` runs. Throws {@link CommandFailure} if there is no node. `writes`: pages that `use`
 * sets must outlast the command.
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
    // The message of a node that refuses already says what to do.
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

/** The client socket of a member on this host; undefined if there is none. */
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
  // Imported here, because a command that finds a node on its host does not need it.
  const { MeshCacheStore } = await import('../node/meshcache-store.js');
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
        // The node owns a part of the directory at once, so it must first receive the content of that part.
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

const HELP = `
An LLM engine whose weights change while it runs (a training step, a reload) shares no pages with others until it is told which
weights it has now. Engines that are told the same fingerprint share pages again. \`meshcache status\` shows the names of attached
clients, and the fingerprints of their namespaces.

Examples:
  meshcache fingerprint vllm step-1200
  meshcache fingerprint sglang-tp0of1 '' --socket /run/meshcache/node.sock
${ATTACH_HELP}`;

/** `meshcache fingerprint`: tells the engines of a host which weights they have. */
export function fingerprintCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('fingerprint'))
    .description('tell the attached clients of a name the fingerprint of their weights')
    .argument('<client>', 'name of the clients')
    .argument('<fingerprint>', "identity of the weights: 1 to 128 visible characters; '' for none", fingerprintText)
    .addHelpText('after', HELP)
    .action((client: string, fingerprint: string, options: AttachOptions) =>
      attached(options, context, { writes: false }, async (cli) => {
        const count = await cli.tellFingerprint(client, fingerprint);
        if (count === null) throw new CommandFailure('the node does not answer');
        if (count === 0) {
          throw new CommandFailure(
            `no client named ${printable(client)} is attached to this node, or it has no namespace of its own; \`meshcache status\` lists the clients`,
          );
        }
        printResult(
          context,
          { client, fingerprint, clients: count },
          {
            json: options.json,
            asText: () => `told ${count} ${count === 1 ? 'client' : 'clients'} named ${printable(client)}`,
          },
        );
      }),
    );
}

function fingerprintText(text: string): string {
  if (text === '' || FINGERPRINT.test(text)) return text;
  throw new InvalidArgumentError(`Allowed are ${FINGERPRINT_ALLOWED}, or '' for none.`);
}
