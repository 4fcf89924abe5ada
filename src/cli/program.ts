import { Command } from 'commander';
import type { CommandContext } from '../command/context.js';
import { logFormatOption } from '../command/options.js';
import { packageVersion } from '../node/reporting/package-version.js';
import type { LogFormat } from '../system/system-log.js';

/** The commands, in the order of the help. Each is loaded on demand, because loading all of them is slow. */
const COMMANDS: Readonly<Record<string, () => Promise<(context: CommandContext) => Command>>> = {
  demo: async () => (await import('./demo/demo.js')).demoCommand,
  node: async () => (await import('./node.js')).nodeCommand,
  status: async () => (await import('./status/status.js')).statusCommand,
  drain: async () => (await import('./status/drain.js')).drainCommand,
  doctor: async () => (await import('./doctor/doctor.js')).doctorCommand,
  prove: async () => (await import('./prove/prove.js')).proveCommand,
  token: async () => (await import('./settings/token.js')).tokenCommand,
  replay: async () => (await import('./replay.js')).replayCommand,
  sim: async () => (await import('./sim/sim.js')).simCommand,
  bench: async () => (await import('../bench/bench-command.js')).benchCommand,
  ping: async () => (await import('./page-commands.js')).pingCommand,
  put: async () => (await import('./page-commands.js')).putCommand,
  get: async () => (await import('./page-commands.js')).getCommand,
  exists: async () => (await import('./page-commands.js')).existsCommand,
  delete: async () => (await import('./page-commands.js')).deleteCommand,
  stat: async () => (await import('./page-commands.js')).statCommand,
  fingerprint: async () => (await import('./page-commands.js')).fingerprintCommand,
  'python-path': async () => (await import('./python-path.js')).pythonPathCommand,
  completions: async () => {
    const { completionsCommand } = await import('./completions/completions.js');
    return (context) => completionsCommand(context, () => createProgram([], context));
  },
};

/**
 * The program with the command that the first word names. If it names none, the program has all commands, for the help
 * and for suggestions on a misspelt name.
 */
export async function createProgram(words: readonly string[], context: CommandContext): Promise<Command> {
  const program = new Command('meshcache')
    .description('Distributed cache for the KV pages of LLM serving')
    .version(packageVersion())
    .addHelpText('after', '\nEvery command has --help with examples, --json and --log-format.')
    .hook('preAction', (_program, command) => {
      const { logFormat } = command.opts<{ readonly logFormat?: LogFormat }>();
      if (logFormat !== undefined) process.env.MESHCACHE_LOG_FORMAT = logFormat;
    });
  const isNamed = Object.hasOwn(COMMANDS, words[0] ?? '');
  for (const [name, load] of Object.entries(COMMANDS)) {
    if (!isNamed || name === words[0]) program.addCommand((await load())(context));
  }
  for (const command of withSubcommands(program)) {
    if (command.commands.length === 0) command.addOption(logFormatOption());
  }
  return program;
}

/** The words that invoke a command: `meshcache sim cluster`. */
export function commandLineOf(command: Command): string {
  return command.parent === null ? command.name() : `${commandLineOf(command.parent)} ${command.name()}`;
}

/** The command, its subcommands, and theirs. */
export function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}
