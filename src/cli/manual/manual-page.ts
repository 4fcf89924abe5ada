import { EXIT_FAILURE, EXIT_WRONG_USAGE } from '../../command/context.js';
import type { CommandDefinition, OptionDefinition, ValueDefinition } from '../../command/definition.js';
import { wrapHelp } from '../../command/help-text.js';

/** Width of the lines of a page's source: 80 characters at most, of which some are escapes. */
const SOURCE_COLUMNS = 70;

/** What all pages say in their header and footer. */
export interface ManualIssue {
  readonly version: string;
  /** Date of the version, or the word for a version that has none yet. */
  readonly date: string;
}

/** The command's name in the manual: `meshcache-sim-trace`. */
export function manualName({ path }: CommandDefinition): string {
  return ['meshcache', ...path.split(' ')].filter((word) => word !== '').join('-');
}

/** A manual page in the language of man(7). `all`: every command that has a page. */
export function manualPage(
  command: CommandDefinition,
  all: readonly CommandDefinition[],
  { version, date }: ManualIssue,
): string {
  const name = manualName(command);
  const { description, commands, args, options } = command;
  const { examples, paragraphs } = parted(command.notes);
  const lines = [
    `.TH ${name.toUpperCase()} 1 ${date} "meshcache ${version}" "meshcache"`,
    '.SH NAME',
    `${escaped(name)} \\-`,
    ...textLines(description),
    '.SH SYNOPSIS',
    synopsis(command),
    ...section('DESCRIPTION', paragraphs.length === 0 ? textLines(`${description}.`) : paragraphs.flatMap(paragraph)),
    ...section('COMMANDS', commands.flatMap(commandEntry)),
    ...section(
      'ARGUMENTS',
      args.filter((each) => each.description !== '').flatMap((each) => entry(italic(each.name), each.description)),
    ),
    ...section(
      'OPTIONS',
      options.flatMap((option) => entry(optionTerm(option), option.details)),
    ),
    ...section('EXAMPLES', examples.length === 0 ? [] : ['.nf', ...examples.flatMap(textLines), '.fi']),
    ...section('EXIT STATUS', [
      ...entry('0', 'success'),
      ...entry(String(EXIT_FAILURE), 'failure'),
      ...entry(String(EXIT_WRONG_USAGE), 'wrong usage or configuration'),
    ]),
    ...section('SEE ALSO', [
      all
        .filter((each) => isNear(each, command))
        .map(reference)
        .join(',\n'),
    ]),
  ];
  return `${lines.join('\n')}\n`;
}

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [`.SH ${title}`, ...lines];
}

function synopsis({ path, args, commands }: CommandDefinition): string {
  const words = commands.length > 0 ? [`${italic('command')} [\\fIoption\\fR ...]`] : args.map(argumentTerm);
  return [bold(`meshcache ${path}`.trim()), ...(commands.length > 0 ? [] : ['[\\fIoption\\fR ...]']), ...words].join(
    ' ',
  );
}

function argumentTerm({ name, isRequired, isVariadic }: ValueDefinition): string {
  const term = `${italic(name)}${isVariadic ? ' ...' : ''}`;
  return isRequired ? term : `[${term}]`;
}

function optionTerm({ flags, value }: OptionDefinition): string {
  const term = flags.map(bold).join(', ');
  if (value === undefined) return term;
  return `${term} ${value.isRequired ? italic(value.name) : `[${italic(value.name)}]`}`;
}

function commandEntry(command: CommandDefinition): string[] {
  return entry(bold(command.name), command.description);
}

function entry(term: string, text: string): string[] {
  return ['.TP', term, ...textLines(text)];
}

function paragraph(text: string, index: number): string[] {
  return [...(index === 0 ? [] : ['.PP']), ...textLines(text)];
}

/** Whether a command is the program, or above or below the other one. */
function isNear({ path }: CommandDefinition, other: CommandDefinition): boolean {
  if (path === other.path) return false;
  return path === '' || other.path === '' || path.startsWith(`${other.path} `) || other.path.startsWith(`${path} `);
}

function reference(command: CommandDefinition): string {
  // Without hyphens at the ends of lines, which would not be those of the name.
  return `\\%${bold(manualName(command))}(1)`;
}

/** The lines of examples, which are indented, and the paragraphs, without the heading of the examples. */
function parted(notes: string): { examples: string[]; paragraphs: string[] } {
  const blocks = notes.split(/\n\n|\n(?= )|(?<=\n .*)\n(?=\S)/).map((block) => block.replaceAll(/\s+$/g, ''));
  return {
    examples: blocks.filter((block) => block.startsWith(' ')),
    paragraphs: blocks
      .filter((block) => /^\S/.test(block) && block !== 'Examples:')
      .map((block) => block.replaceAll('\n', ' ')),
  };
}

function bold(text: string): string {
  return `\\fB${escaped(text)}\\fR`;
}

function italic(text: string): string {
  return `\\fI${escaped(text)}\\fR`;
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-');
}

/** Text in lines of the source, none of which begins with the character of a request. */
function textLines(text: string): string[] {
  return wrapHelp(text, SOURCE_COLUMNS)
    .split('\n')
    .map((line) => escaped(line).replace(/^[.']/, '\\&$&'));
}
