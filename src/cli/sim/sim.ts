import { Command } from 'commander';
import type { CommandContext } from '../../command/context.js';
import { simClusterCommand } from './cluster.js';
import { simGrowthCommand } from './growth.js';
import { simTraceCommand } from './trace.js';

/** The command with all simulations as its subcommands. */
export function simCommand(context: CommandContext): Command {
  return new Command('sim')
    .description('simulate clusters on virtual time, and predict hit rates')
    .addCommand(simClusterCommand(context))
    .addCommand(simTraceCommand(context))
    .addCommand(simGrowthCommand(context))
    .addHelpText(
      'after',
      '\nSee: meshcache sim cluster --help, meshcache sim trace --help, meshcache sim growth --help',
    );
}
