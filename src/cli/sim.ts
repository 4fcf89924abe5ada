import { Command } from 'commander';
import type { CommandContext } from './context.js';
import { simTraceCommand } from './sim-trace.js';

/** The simulations, each a command of its own. */
export function simCommand(context: CommandContext): Command {
  return new Command('sim')
    .description('simulate clusters: what would they hit, before anybody buys them')
    .addCommand(simTraceCommand(context))
    .addHelpText('after', '\nSee: meshcache sim trace --help');
}
