import { Argument, Command } from 'commander';
import { type CommandContext, printResult } from '../../command/context.js';
import { type CommandDefinition, definitionOf } from '../../command/definition.js';
import { jsonOption } from '../../command/options.js';
import { bashCompletions } from './bash.js';
import { fishCompletions } from './fish.js';
import { zshCompletions } from './zsh.js';

const SCRIPTS: Readonly<Record<string, (program: CommandDefinition) => string>> = {
  bash: bashCompletions,
  zsh: zshCompletions,
  fish: fishCompletions,
};

/** `meshcache completions`: prints the script of a shell. `wholeProgram` returns the program with all its commands. */
export function completionsCommand(context: CommandContext, wholeProgram: () => Promise<Command>): Command {
  return new Command('completions')
    .description('print the completions of commands and options for a shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache completions bash > /etc/bash_completion.d/meshcache
  meshcache completions zsh > /usr/local/share/zsh/site-functions/_meshcache
  meshcache completions fish > ~/.config/fish/completions/meshcache.fish
  source <(meshcache completions bash)

Print them again after an upgrade: the script lists the commands and options of this version.`,
    )
    .action(async (shell: string, options: { readonly json: boolean }) => {
      const write = SCRIPTS[shell] as (program: CommandDefinition) => string;
      const script = write(definitionOf(await wholeProgram()));
      printResult(context, { shell, script }, { json: options.json, asText: (result) => result.script.trimEnd() });
    });
}
