import test from 'ava';
import { type Command, CommanderError } from 'commander';
import { createProgram, withSubcommands } from '../../src/cli/program.js';
import type { CommandContext } from '../../src/command/context.js';
import { CONFIG_KEYS } from '../../src/config.js';
import { documents, fencesOf, proseOf, textOf } from '../_support/docs/markdown.js';

/** The command as users have it, whose commands only parse. */
async function parsingProgram(): Promise<Command> {
  const program = await createProgram([], {} as CommandContext);
  for (const command of withSubcommands(program)) {
    command.exitOverride().configureOutput({ writeErr: () => {}, writeOut: () => {} });
    if (command.commands.length === 0) command.action(() => {});
  }
  return program;
}

/** The words of a line of shell, without comments, quotes, redirections and what follows them. */
function wordsOf(line: string): string[] {
  const words = line.match(/"[^"]*"|'[^']*'|[^\s"']+/g) ?? [];
  const end = words.findIndex((word) => /^(#.*|[|&<>]+.*|\d>.*|;)$/.test(word));
  return words.slice(0, end < 0 ? undefined : end).map((word) => word.replace(/^["'](.*)["']$/, '$1'));
}

/** The error of a command line; undefined if the program takes it. */
async function refusal(line: string): Promise<string | undefined> {
  const words = wordsOf(line);
  try {
    await (await parsingProgram()).parseAsync(words, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return undefined;
    return (error as Error).message;
  }
  for (const [i, word] of words.entries()) {
    const key = (words[i + 1] ?? '').replace(/=.*/, '');
    if (['-o', '--option'].includes(word) && !CONFIG_KEYS.includes(key)) return `${key} is no configuration key`;
  }
  return undefined;
}

/**
 * Every use of the command in a document's shell blocks and in code of its text; the latter may be a part of a command
 * line.
 */
function commandLines(text: string): string[] {
  const blocks = fencesOf(text).filter(({ language }) => language === 'sh');
  const lines = blocks.flatMap((fence) => fence.text.replaceAll(/\\\n/g, ' ').split('\n'));
  const inBlocks = lines.flatMap((line) =>
    [...line.matchAll(/(?:^|npx |\$\(|[|&;] *)meshcache ([^#)]+)/g)].map(([, rest]) => rest as string),
  );
  const inText = [...proseOf(text).matchAll(/`(?:npx )?meshcache ([a-z][^`]*)`/g)].map(([, rest]) => rest as string);
  return [...inBlocks.filter((line) => !/^\.?$/.test(line.trim())), ...inText];
}

/** A command that is only named, or written with `…` or capital letters in place of values. */
function filledIn(line: string): string[] {
  const filled = line
    .replaceAll('ADDRESS', 'h:1')
    .replaceAll('SIZE', '8mb')
    .replaceAll(/\b[A-Z]{3,}\b/g, 'value');
  return [filled, `${filled} value`, `${filled} value --discovery-addr h:1`, `${filled} h:1`];
}

test('docs: every command line is one that the program takes', async (t) => {
  let count = 0;
  for (const path of documents()) {
    for (const line of commandLines(textOf(path) ?? '')) {
      // `docker build -t meshcache .` and the like are no calls of the command.
      const [name = ''] = wordsOf(line);
      if (!/^[a-z]/.test(name)) continue;
      count++;
      const refusals = await Promise.all(filledIn(line).map(refusal));
      t.true(refusals.includes(undefined), `${path}: meshcache ${line}: ${refusals[0]}`);
    }
  }
  t.true(count > 60, `${count} command lines`);
});

test('docs: a command line that the program refuses is found', async (t) => {
  for (const [line, says] of [
    ['node --discovery-adr h:1', /unknown option/],
    ['bench speed', /speed/],
    ['dance', /unknown command/],
    ['node -o vnode=3', /vnode is no configuration key/],
    ['demo --nodes three', /whole number/],
  ] as const)
    t.regex((await refusal(line)) ?? '', says);
  t.is(await refusal('node --discovery-addr h:1 --pool 64gb   # a comment'), undefined);
  t.is(await refusal('get greeting > file'), undefined);
});

test('docs: the page of commands names every command', async (t) => {
  const text = [textOf('docs/commands.md'), textOf('docs/guides/simulator.md')].join('');
  for (const command of (await parsingProgram()).commands) {
    t.true(text.includes(`meshcache ${command.name()}`), command.name());
    for (const below of command.commands) t.true(text.includes(`meshcache sim ${below.name()}`), below.name());
  }
});
