import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { createProgram } from '../../src/cli/program.js';
import type { CommandContext } from '../../src/command/context.js';
import { definitionOf, ownCommands } from '../../src/command/definition.js';
import { helpWidth, wrapHelp } from '../../src/command/help-text.js';
import { whyWithout } from '../_support/cli/shells.js';
import { unless } from '../_support/unless.js';

const PROGRAM = fileURLToPath(new URL('./cli.js', import.meta.url));

test('help: the width is that of the terminal, 80 where it is unknown, 40 to 120', (t) => {
  t.deepEqual([undefined, 10, 40, 100, 120, 500].map(helpWidth), [80, 40, 40, 100, 120, 120]);
});

test('help: paragraphs are wrapped anew, columns keep theirs, and commands go on as a shell wants it', (t) => {
  const text = [
    'The first line of a paragraph',
    'and the second one.',
    '',
    '  --option  a description that is too long for it',
    '  --an-option-with-a-very-long-name  its description',
    '  short',
    "  meshcache put 'a key of words' --text hello --json",
    'after it',
    '',
  ];
  t.deepEqual(wrapHelp(text.join('\n'), 40).split('\n'), [
    'The first line of a paragraph and the',
    'second one.',
    '',
    '  --option  a description that is too',
    '            long for it',
    '  --an-option-with-a-very-long-name',
    '      its description',
    '  short',
    "  meshcache put 'a key of words' \\",
    '      --text hello --json',
    'after it',
    '',
  ]);
});

test('help: wrapped text stays as it is, and a long word stays whole', (t) => {
  const word = 'w'.repeat(50);
  t.is(wrapHelp(`a ${word} b\n`, 40), `a\n${word}\nb\n`);
  const once = wrapHelp('some words, '.repeat(30), 60);
  t.is(wrapHelp(once, 60), once);
});

unless(whyWithout('script'))(
  'help: that of each command has room in a terminal of 40, 72 and 160 columns',
  async (t) => {
    t.timeout(120_000);
    const program = definitionOf(await createProgram([], {} as CommandContext));
    const commands = ownCommands(program);
    t.true(commands.length > 20);
    for (const columns of [40, 72, 160]) {
      const calls = commands.map(({ path }) => `'${process.execPath}' '${PROGRAM}' ${path} --help`);
      const shell = `stty cols ${columns}; ${calls.join('; ')}`;
      const { stdout } = spawnSync('script', ['-qec', shell, '/dev/null'], { encoding: 'utf8' });
      const lines = stdout.replaceAll('\r', '').split('\n');
      t.true(lines.length > 500);
      const tooLong = lines.filter((line) => line.length > Math.min(columns, 120));
      // Only where one word alone is longer.
      t.deepEqual(
        tooLong.filter((line) => /\S\s+\S/.test(line.replace(/ \\$/, ''))),
        [],
      );
      if (columns === 160) t.true(lines.some((line) => line.length > 110));
    }
  },
);
