import { readFileSync } from 'node:fs';
import test from 'ava';
import { nodeVersions } from '../_support/package/node-versions.js';
import { createUser, programsOf, type User } from '../_support/package/packed.js';
import { freePort } from '../_support/support.js';

let user: User;
const programIn = (path: string, index = 0): string => programsOf(readFileSync(path, 'utf8'))[index] as string;
const [first, engine, core] = [
  programIn('README.md'),
  programIn('docs/rdma.md'),
  programIn('docs/guides/simulator.md', 1),
];

test.before(async (t) => {
  t.timeout(120_000);
  user = await createUser();
});
test.after.always(() => user?.remove());

for (const { name, program, missing, env } of nodeVersions()) {
  const suffix = missing === '' ? `on ${name}` : `on ${name} (skipped: ${missing})`;
  const whereRun = missing === '' ? test.serial : test.serial.skip;

  whereRun(`package: installed in an empty folder, the README’s first program runs ${suffix}`, async (t) => {
    await user.write('first.js', first.replace('31990', String(await freePort())));
    const { stdout } = await user.run(program, ['first.js']);
    t.is(stdout, 'hello\n[ true, true ]\n2\n[ true, false ]\n');
  });

  whereRun(`package: the documented programs for the engine and the core run ${suffix}`, async (t) => {
    await user.write('engine.js', engine);
    t.regex((await user.run(program, ['engine.js'])).stdout, /^(\[ true \]|no RDMA here: .+)\n$/);
    await user.write('core.js', core);
    const { stdout } = await user.run(program, ['core.js']);
    t.regex(stdout, /^\[ 'node-[abc]', 'node-[abc]' \]\n\{ offset: 0, slot: 0, evicted: \[\] \}\n$/);
  });

  whereRun(`package: npx meshcache demo and doctor work ${suffix}`, async (t) => {
    t.timeout(120_000);
    const demo = ['meshcache', 'demo', '--json', '--conversations', '4', '--page-bytes', '64kb', '--seconds', '20'];
    const { stdout } = await user.run('npx', ['--no-install', ...demo], env);
    const result = JSON.parse(stdout) as Record<string, unknown>;
    t.like(result, { nodes: 3, conversations: 4, wrong_bytes: 0 });
    t.true((result.prefix_hits as number) > 0, stdout);
    const doctor = await user.run('npx', ['--no-install', 'meshcache', 'doctor'], env);
    t.regex(doctor.stdout, new RegExp(`ok +Node\\.js +v${(await user.run(program, ['-v'])).stdout.slice(1)}`.trim()));
  });

  whereRun(
    `package: npx meshcache bench measures between two processes, and does without Redis ${suffix}`,
    async (t) => {
      const bench = ['meshcache', 'bench', 'tcp', '--quick', '--rounds', '1', '--json'];
      const { stdout } = await user.run('npx', ['--no-install', ...bench], env);
      const { rows, notes } = JSON.parse(stdout) as { rows: { contender: string }[]; notes: string[] };
      t.true(
        rows.some(({ contender }) => contender === 'batchRead'),
        stdout,
      );
      t.true(
        notes.some((note) => note.includes('the package ioredis is not installed')),
        stdout,
      );
    },
  );

  whereRun(`package: a CommonJS program gets the same module by require ${suffix}`, async (t) => {
    const text = `
      const { ArgumentError, ConsistentHashRing } = require('meshcache');
      const core = require('meshcache/core');
      console.log(core.ConsistentHashRing === ConsistentHashRing, core.ArgumentError === ArgumentError);
      console.log(typeof require('meshcache/native').HAS_RDMA, require('meshcache/package.json').name);
    `;
    await user.write('program.cjs', text);
    t.is((await user.run(program, ['program.cjs'])).stdout, 'true true\nboolean meshcache\n');
  });

  whereRun(`package: the error of a wrong call names the function, the file and the line ${suffix}`, async (t) => {
    const text = `import { HostRegion } from 'meshcache'; HostRegion.allocate(-1);`;
    await user.write('wrong.js', text);
    const { stderr } = (await t.throwsAsync(user.run(program, ['wrong.js']))) as Error & { stderr: string };
    t.regex(stderr, /ArgumentError: HostRegion\.allocate: length must be .*got -1/);
    t.regex(stderr, /at _?HostRegion\.allocate \(file:.*meshcache\/build\/dist\/[\w-]+\.js:\d+:\d+\)/);
  });
}
