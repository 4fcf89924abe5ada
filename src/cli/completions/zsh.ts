import {
  allCommands,
  type CommandDefinition,
  type OptionDefinition,
  type Proposals,
  type ValueDefinition,
} from '../../command/definition.js';
import { quoted } from './shell-text.js';

/** What `_arguments` calls to propose names of files. */
const ACTIONS = { files: '_files', folders: '_files -/', nothing: ' ' } as const;

/** The script for zsh: a file `_meshcache` of a folder in `fpath`, or text to be evaluated after `compinit`. */
export function zshCompletions(program: CommandDefinition): string {
  return `#compdef meshcache
# Completions of meshcache for zsh: source <(meshcache completions zsh)
${allCommands(program).map(functionOf).join('')}
if [ "\${funcstack[1]}" = _meshcache ]; then _meshcache "$@"; else compdef _meshcache meshcache; fi
`;
}

function functionOf(command: CommandDefinition): string {
  const options = command.options.map(optionSpec);
  if (command.commands.length === 0) {
    return `
${functionName(command)}() {
  _arguments -s ${[...options, ...command.args.map(argumentSpec)].map((spec) => `\\\n    ${spec}`).join(' ')}
}
`;
  }
  const names = command.commands.map(({ name, description }) => quoted(`${escaped(name)}:${escaped(description)}`));
  return `
${functionName(command)}() {
  local context state line
  typeset -A opt_args
  _arguments -C ${options.map((spec) => `\\\n    ${spec}`).join(' ')} \\
    '1: :->command' '*:: :->rest'
  case $state in
    command)
      local -a commands=(
${names.map((name) => `        ${name}`).join('\n')}
      )
      _describe -t commands command commands ;;
    rest) case $line[1] in
${command.commands.map((each) => `      ${each.name}) ${functionName(each)} ;;`).join('\n')}
    esac ;;
  esac
}
`;
}

function functionName({ path }: CommandDefinition): string {
  return `_meshcache${path === '' ? '' : `_${path.replaceAll(' ', '_')}`}`;
}

/** One option with all its spellings, each of which excludes the others. */
function optionSpec({ flags, description, value }: OptionDefinition): string {
  const isRepeated = value?.isVariadic === true || value?.name === 'key=value';
  const prefix = isRepeated ? "'*'" : quoted(`(${flags.join(' ')})`);
  const spellings = flags.map((flag) => (value === undefined ? flag : `${flag}${flag.startsWith('--') ? '=' : '+'}`));
  const names = spellings.length === 1 ? spellings[0] : `{${spellings.join(',')}}`;
  return `${prefix}${names}${quoted(`[${escaped(description)}]${value === undefined ? '' : valueSpec(value)}`)}`;
}

function valueSpec({ name, isRequired, proposals }: ValueDefinition): string {
  return `${isRequired ? ':' : '::'}${escaped(name)}:${action(proposals)}`;
}

function argumentSpec(argument: ValueDefinition): string {
  const { name, isRequired, isVariadic, proposals } = argument;
  return quoted(`${isVariadic ? '*' : ''}${isRequired ? ':' : '::'}${escaped(name)}:${action(proposals)}`);
}

function action(proposals: Proposals): string {
  return proposals.kind === 'words' ? `(${proposals.words.join(' ')})` : ACTIONS[proposals.kind];
}

/** Text without what divides a specification of zsh. */
function escaped(text: string): string {
  return text.replace(/[\\[\]:]/g, '\\$&');
}
