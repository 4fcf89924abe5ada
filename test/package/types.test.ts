import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { createUser, give, lend, programsOf, type User } from '../_support/package/packed.js';

const run = promisify(execFile);

/** The project's compiler, and an older one that another tool brings. */
const COMPILERS = [
  ['the project’s TypeScript', 'node_modules/typescript/bin/tsc'],
  ['TypeScript 5.6', 'node_modules/@arethetypeswrong/core/node_modules/typescript/bin/tsc'],
] as const;
const RESOLUTIONS = [
  ['node16', 'node16'],
  ['nodenext', 'nodenext'],
  ['esnext', 'bundler'],
] as const;
/** No `dom`: what a program for Node has. */
const OPTIONS = '--noEmit --strict --exactOptionalPropertyTypes --skipLibCheck false --target es2023'.split(' ');

let user: User;
let sources: string[];

test.before(async (t) => {
  t.timeout(120_000);
  user = await createUser();
  sources = await give(user, 'test/package/consumer');
  await lend(user, ['@types/node', 'undici-types']);
  // Also as TypeScript, unchanged.
  const [first] = programsOf(await readFile('README.md', 'utf8')) as [string];
  await user.write('first.mts', first);
});
test.after.always(() => user?.remove());

for (const [name, compiler] of COMPILERS) {
  const whereRun = existsSync(compiler) ? test.serial : test.serial.skip;
  const suffix = existsSync(compiler) ? '' : ` (skipped: no ${compiler})`;
  for (const [module, resolution] of RESOLUTIONS) {
    whereRun(`package: strict programs compile, moduleResolution ${resolution}, ${name}${suffix}`, async (t) => {
      t.timeout(60_000);
      const flags = [...OPTIONS, '--module', module, '--moduleResolution', resolution];
      const files = [...sources.filter((file) => file !== 'browser.mts'), 'first.mts'];
      // No `--types node`: what needs the types of Node says so itself.
      await t.notThrowsAsync(compile(compiler, [...flags, '--lib', 'es2023', ...files]));
    });
  }

  whereRun(`package: a browser’s program compiles without types of Node, ${name}${suffix}`, async (t) => {
    const flags = [...OPTIONS, '--module', 'esnext', '--moduleResolution', 'bundler', '--lib', 'es2023,dom'];
    await t.notThrowsAsync(compile(compiler, [...flags, '--typeRoots', 'none', 'browser.mts']));
  });

  whereRun(`package: a wrong program does not compile, ${name}${suffix}`, async (t) => {
    await user.write('wrong.mts', `import { HostRegion } from 'meshcache';\nHostRegion.allocate('1gb');\n`);
    const flags = [...OPTIONS, '--module', 'nodenext', '--lib', 'es2023'];
    await t.throwsAsync(compile(compiler, [...flags, 'wrong.mts']), { message: /wrong\.mts\(2,21\): error TS2345/ });
  });
}

/** Rejects with what the compiler says. */
async function compile(compiler: string, args: readonly string[]): Promise<void> {
  try {
    await run(process.execPath, [join(process.cwd(), compiler), ...args], { cwd: user.folder });
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${stdout}${stderr}`);
  }
}
