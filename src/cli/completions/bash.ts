import { allCommands, type CommandDefinition, type Proposals } from '../../command/definition.js';
import { quoted } from './shell-text.js';

/** Where bash puts what it proposes, and how it asks readline for names of files instead. */
const PROPOSE = {
  files: 'compopt -o default 2>/dev/null',
  folders: 'compopt -o dirnames 2>/dev/null',
  nothing: ':',
} as const;

/** The script for bash, from 3.2 on; before 4.0 it completes no names of files. */
export function bashCompletions(program: CommandDefinition): string {
  const commands = allCommands(program);
  const steps = commands.flatMap((each) =>
    each.commands.map(({ name }) => [`${each.path} ${name}`, each, name] as const),
  );
  const values = commands.flatMap((each) =>
    each.options.flatMap(({ flags, value }) =>
      value?.isRequired ? flags.map((flag) => [`${each.path} ${flag}`, value.proposals] as const) : [],
    ),
  );
  return `# Completions of meshcache for bash: source <(meshcache completions bash)
_meshcache() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" path='' arguments=0 words='' i
  COMPREPLY=()
  # Readline splits --option=value into three words.
  if [ "$current" = = ]; then current=''; elif [ "$previous" = = ]; then previous="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path \${COMP_WORDS[i]}" in
${steps.map(([from, { path }, name]) => `      ${quoted(from)}) path=${quoted(`${path} ${name}`.trim())} ;;`).join('\n')}
      *' -'* | *' =') ;;
      *) case "$path \${COMP_WORDS[i-1]}" in
${values.map(([pattern]) => `        ${quoted(pattern)} | \\`).join('\n')}
        *' =') ;;
        *) arguments=$((arguments + 1)) ;;
      esac ;;
    esac
  done
  case "$path $previous" in
${values.map(([pattern, proposals]) => `    ${quoted(pattern)}) ${propose(proposals)}; return ;;`).join('\n')}
  esac
  case "$current" in
    -*) case "$path" in
${commands.map((each) => `      ${quoted(each.path)}) words='${each.options.flatMap(({ flags }) => flags).join(' ')}' ;;`).join('\n')}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return ;;
  esac
  case "$path $arguments" in
${commands.flatMap(argumentCases).join('\n')}
  esac
}
complete -F _meshcache meshcache
`;
}

/** What to propose at each place for an argument of a command, or for the name of a subcommand. */
function argumentCases({ path, args, commands }: CommandDefinition): string[] {
  if (commands.length > 0) {
    const words = commands.map(({ name }) => name);
    return [`    ${quoted(`${path} 0`)}) ${propose({ kind: 'words', words })} ;;`];
  }
  return args.map(({ isVariadic, proposals }, i) => {
    const pattern = isVariadic ? `${quoted(`${path} `)}*` : quoted(`${path} ${i}`);
    return `    ${pattern}) ${propose(proposals)} ;;`;
  });
}

function propose(proposals: Proposals): string {
  if (proposals.kind !== 'words') return PROPOSE[proposals.kind];
  return `COMPREPLY=($(compgen -W ${quoted(proposals.words.join(' '))} -- "$current"))`;
}
