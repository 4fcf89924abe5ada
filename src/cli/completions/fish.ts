import {
  allCommands,
  type CommandDefinition,
  type OptionDefinition,
  type Proposals,
} from '../../command/definition.js';

/** The script for fish: a file `meshcache.fish` in its folder of completions, or text for `source`. */
export function fishCompletions(program: CommandDefinition): string {
  const commands = allCommands(program);
  const paths = commands.filter(({ path }) => path !== '').map(({ path }) => quoted(path));
  return `# Completions of meshcache for fish: meshcache completions fish | source
# Succeeds if the words before the cursor name this command, and none of its subcommands.
function __meshcache_at
    set -l path ''
    for word in (commandline -opc)[2..-1]
        if contains -- (string trim -- "$path $word") ${paths.join(' ')}
            set path (string trim -- "$path $word")
        end
    end
    test "$path" = "$argv[1]"
end

# The function of fish takes the whole of \`--option=\` for the beginning of a name.
function __meshcache_folders
    __fish_complete_directories (commandline -ct | string replace -r -- '^--[^=]*=' '')
end

complete -c meshcache -f
${commands.flatMap(linesOf).join('\n')}
`;
}

function linesOf(command: CommandDefinition): string[] {
  const at = `complete -c meshcache -n ${quoted(`__meshcache_at ${quoted(command.path)}`)}`;
  return [
    ...command.commands.map(({ name, description }) => `${at} -a ${quoted(name)} -d ${quoted(description)}`),
    ...command.args.flatMap(({ proposals }) => (proposals.kind === 'nothing' ? [] : [`${at}${propose(proposals)}`])),
    ...command.options.map((option) => `${at}${optionOf(option)}`),
  ];
}

function optionOf({ flags, description, value }: OptionDefinition): string {
  const names = flags.map((flag) => (flag.startsWith('--') ? ` -l ${flag.slice(2)}` : ` -s ${flag.slice(1)}`));
  const proposals = value?.isRequired
    ? `${value.proposals.kind === 'files' ? ' -r' : ' -x'}${propose(value.proposals)}`
    : '';
  return `${names.join('')}${proposals} -d ${quoted(description)}`;
}

function propose(proposals: Proposals): string {
  if (proposals.kind === 'words') return ` -a ${quoted(proposals.words.join(' '))}`;
  if (proposals.kind === 'files') return ' -F';
  return proposals.kind === 'folders' ? ' -a "(__meshcache_folders)"' : '';
}

/** Text in the quotes of fish, in which a backslash escapes. */
function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}
