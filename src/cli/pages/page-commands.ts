import { Command } from 'commander';
import { PAGE_MAX_BYTES } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import type { MeshCacheClient } from '../../client/meshcache-client.js';
import { type CommandContext, printResult } from '../../command/context.js';
import { CommandFailure, EXIT_FAILURE, wrongUsage } from '../../command/failure.js';
import { wholeNumber } from '../../command/options.js';
import { formatTable, printable } from '../../command/table.js';
import { systemFiles } from '../../system/files/system-files.js';
import { ATTACH_HELP, type AttachOptions, addAttachOptions, attached } from './attaching.js';

/*
 * Commands to try a cluster with: each attaches to the node of this host, does one thing, and ends.
 */

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
    // Input that is too long is not read to its end, as it may have none.
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
