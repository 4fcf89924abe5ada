import type { Argument, Command, Option } from 'commander';

/** What stands for a file and for a folder in the definitions of options and arguments: `<file>`, `[file]`. */
const FILES: ReadonlySet<string> = new Set(['file', 'path', 'trace']);
const FOLDERS: ReadonlySet<string> = new Set(['folder']);

/** What a shell proposes for a value. */
export type Proposals =
  | { readonly kind: 'words'; readonly words: readonly string[] }
  | { readonly kind: 'files' | 'folders' | 'nothing' };

/** The value of an option, or an argument. */
export interface ValueDefinition {
  /** Name in the help: `count`. */
  readonly name: string;
  readonly isRequired: boolean;
  readonly isVariadic: boolean;
  readonly proposals: Proposals;
}

export interface OptionDefinition {
  /** All spellings: `-n`, `--count`. */
  readonly flags: readonly string[];
  readonly description: string;
  /** The description, with choices and default. */
  readonly details: string;
  /** Undefined for an option that takes no value. */
  readonly value: ValueDefinition | undefined;
}

/** A command as its help shows it, for completions and manual pages. */
export interface CommandDefinition {
  readonly name: string;
  /** The words after the program's name: `sim cluster`; empty for the program. */
  readonly path: string;
  readonly description: string;
  readonly options: readonly OptionDefinition[];
  readonly args: readonly (ValueDefinition & { readonly description: string })[];
  readonly commands: readonly CommandDefinition[];
  /** What the help says below all of this, such as examples. */
  readonly notes: string;
}

/** Reads what commander knows of a command and its subcommands. */
export function definitionOf(command: Command, path = ''): CommandDefinition {
  const help = command.createHelp();
  const commands = help.visibleCommands(command).map((each) => definitionOf(each, `${path} ${each.name()}`.trim()));
  return {
    name: command.name(),
    path,
    description: command.description(),
    options: help
      .visibleOptions(command)
      .map((option) => ({ ...optionDefinition(option), details: help.optionDescription(option) })),
    args: command.registeredArguments.map(argumentDefinition),
    commands: commands.map((each) => (each.name === 'help' ? helpOf(commands, each) : each)),
    notes: notesOf(command),
  };
}

/** The command and all below it. */
export function allCommands(definition: CommandDefinition): CommandDefinition[] {
  return [definition, ...definition.commands.flatMap(allCommands)];
}

/** The command and all below it, without those that only show the help of others. */
export function ownCommands(definition: CommandDefinition): CommandDefinition[] {
  return allCommands(definition).filter(({ path }) => !path.split(' ').includes('help'));
}

function notesOf(command: Command): string {
  const texts: string[] = [];
  // An emitter, as commander documents, whose declarations leave this method out.
  const emitter = command as Command & { emit(event: string, context: object): boolean };
  emitter.emit('afterHelp', { error: false, command, write: (text: string) => texts.push(text) });
  return texts.join('').trim();
}

/** The command `help`, below which are the names of the commands beside it, and of those below them. */
function helpOf(beside: readonly CommandDefinition[], { name, path, description }: CommandDefinition) {
  const named = beside.filter((each) => each.name !== 'help');
  const commands: CommandDefinition[] = named.map((each) =>
    helpOf(each.commands, { ...each, path: `${path} ${each.name}` }),
  );
  return { name, path, description, options: [], args: [], commands, notes: '' };
}

function optionDefinition({ short, long, flags, description, variadic, required, optional, argChoices }: Option) {
  const name = /[<[]([^>\].]+)/.exec(flags)?.[1];
  const value =
    name === undefined || !(required || optional)
      ? undefined
      : { name, isRequired: required, isVariadic: variadic, proposals: proposalsFor(name, argChoices) };
  return { flags: [short, long].filter((flag) => flag !== undefined), description, value };
}

function argumentDefinition(argument: Argument): ValueDefinition & { description: string } {
  const name = argument.name();
  const proposals = proposalsFor(name, argument.argChoices);
  const { description, required, variadic } = argument;
  return { name, description, isRequired: required, isVariadic: variadic, proposals };
}

function proposalsFor(name: string, choices: readonly string[] | undefined): Proposals {
  if (choices !== undefined) return { kind: 'words', words: choices };
  if (FILES.has(name)) return { kind: 'files' };
  return { kind: FOLDERS.has(name) ? 'folders' : 'nothing' };
}
