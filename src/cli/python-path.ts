import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { type CommandContext, CommandFailure, printResult } from '../command/context.js';
import { jsonOption } from '../command/options.js';

/** The Python client's folder, relative to the bundles in build/dist and build/test. */
const FOLDER = new URL('../python', import.meta.url);

interface PythonPathResult {
  readonly path: string;
}

export function pythonPathCommand(context: CommandContext): Command {
  return new Command('python-path')
    .description('print the folder of the Python client, for pip to install')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  pip install "$(npx meshcache python-path)"
  meshcache python-path --json

The Python client needs Python 3.10 or newer and no other package; pip installs it without a network.`,
    )
    .action((options: { readonly json: boolean }) => {
      const path = fileURLToPath(FOLDER);
      if (!existsSync(path)) throw new CommandFailure(`the Python client is not at ${path}: install the package anew`);
      const result: PythonPathResult = { path };
      printResult(context, result, { json: options.json, asText: (shown) => shown.path });
    });
}
