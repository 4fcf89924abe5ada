import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { createProgram } from '../../src/cli/program.js';
import type { CommandContext } from '../../src/command/context.js';
import { allCommands, type CommandDefinition, definitionOf } from '../../src/command/definition.js';
import { runCli } from '../_support/cli/run-cli.js';
import { InteractiveShell, proposalsOf, type Shell, whyWithout } from '../_support/cli/shells.js';
import { unless } from '../_support/unless.js';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
const folder = mkdtempSync(join(tmpdir(), 'meshcache-completions-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

async function scriptFor(shell: Shell): Promise<string> {
  const { status, stdout, stderr } = await runCli(['completions', shell]);
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

async function inShell(shell: 'bash' | 'zsh', act: (shell: InteractiveShell) => Promise<void>): Promise<void> {
  const started = await InteractiveShell.start(shell, {
    script: await scriptFor(shell),
    folder: mkdtempSync(join(folder, shell)),
  });
  try {
    await act(started);
  } finally {
    started.end();
  }
}

/** What a shell proposes for each line. */
async function proposals(shell: Shell, lines: readonly string[]): Promise<string[][]> {
  if (shell !== 'zsh') return proposalsOf(shell, await scriptFor(shell), lines);
  const all: string[][] = [];
  await inShell('zsh', async (zsh) => {
    for (const line of lines) all.push(await zsh.proposals(line));
  });
  return all;
}

/** Lines that end where a command, an option or a word of a choice may stand, each with all that may. */
function places(program: CommandDefinition): [line: string, words: string[]][] {
  return allCommands(program).flatMap(({ path, options, commands, args }) => {
    const start = `meshcache ${path === '' ? '' : `${path} `}`;
    const flags = options.flatMap((option) => option.flags);
    const [first] = args;
    const choices = options.flatMap(({ flags: spellings, value }): [string, string[]][] =>
      value?.proposals.kind === 'words' ? [[`${start}${spellings.at(-1)} `, [...value.proposals.words]]] : [],
    );
    const long: [string, string[]] = [`${start}--`, flags.filter((flag) => flag.startsWith('--'))];
    if (commands.length > 0) return [long, [start, commands.map(({ name }) => name)], ...choices];
    return first?.proposals.kind === 'words'
      ? [long, [start, [...first.proposals.words]], ...choices]
      : [long, ...choices];
  });
}

for (const shell of SHELLS) {
  const missing = shell === 'zsh' ? whyWithout('zsh', 'script') : whyWithout(shell);

  unless(missing, test.serial)(`completions: ${shell} proposes every command, option and choice`, async (t) => {
    const program = definitionOf(await createProgram([], {} as CommandContext));
    const expected = places(program);
    t.true(expected.length > 30, `${expected.length}`);
    const found = await proposals(
      shell,
      expected.map(([line]) => line),
    );
    expected.forEach(([line, words], i) => {
      t.deepEqual(found[i], [...words].sort(), line);
    });
  });

  unless(missing, test.serial)(
    `completions: ${shell} knows where an option has its value and where none`,
    async (t) => {
      const [afterValue, afterArgument, ofHelp, joined, free] = await proposals(shell, [
        'meshcache bench --rounds 3 st',
        'meshcache bench store st',
        'meshcache help dem',
        'meshcache node --log-format=js',
        'meshcache demo --nodes ',
      ]);
      t.deepEqual(afterValue, ['store']);
      // Fish proposes an argument's words also when it is there.
      t.deepEqual(afterArgument, shell === 'fish' ? ['store'] : []);
      t.deepEqual(ofHelp, ['demo']);
      t.deepEqual(
        joined?.map((word) => word.replace('--log-format=', '')),
        ['json'],
      );
      t.deepEqual(free, []);
    },
  );
}

for (const shell of ['bash', 'zsh'] as const) {
  unless(whyWithout(shell, 'script'), test.serial)(
    `completions: a key in an interactive ${shell} completes`,
    async (t) => {
      await inShell(shell, async (typed) => {
        t.is(await typed.type('meshcache dem\t --nod\t 3'), '<demo><--nodes><3>');
        t.is(await typed.type('meshcache si\tgro\t --hel\t'), '<sim><growth><--help>');
        t.is(await typed.type('meshcache bench --rounds 3 pla\t'), '<bench><--rounds><3><placement>');
      });
    },
  );

  unless(whyWithout(shell, 'script'), test.serial)(`completions: ${shell} completes files and folders`, async (t) => {
    const place = join(folder, `${shell}-files`);
    mkdirSync(join(place, 'a folder'), { recursive: true });
    writeFileSync(join(place, 'some page'), '');
    await inShell(shell, async (typed) => {
      t.is(await typed.type(`meshcache put key ${place}/so\t`), `<put><key><${place}/some page>`);
      const typedFolder = await typed.type(`meshcache node --disk-path ${place}/\t`);
      t.is(typedFolder.replace('/>', '>'), `<node><--disk-path><${place}/a folder>`);
    });
  });
}

unless(whyWithout('fish'))('completions: fish completes files and folders', async (t) => {
  writeFileSync(join(folder, 'fish-page'), '');
  mkdirSync(join(folder, 'fish-folder'));
  const script = await scriptFor('fish');
  const lines = [
    `meshcache put key ${folder}/fish-p`,
    `meshcache node --disk-path ${folder}/fish-`,
    'meshcache node --disk-path=',
  ];
  const [file, afterSpace, joined] = proposalsOf('fish', script, lines);
  t.deepEqual(file, [`${folder}/fish-page`]);
  t.deepEqual(afterSpace, [`${folder}/fish-folder/`]);
  t.true(joined?.includes('--disk-path=src/'), joined?.join());
});

test('completions: --json has the script and its shell', async (t) => {
  const { stdout } = await runCli(['completions', 'fish', '--json']);
  t.deepEqual(JSON.parse(stdout), { shell: 'fish', script: await scriptFor('fish') });
});
