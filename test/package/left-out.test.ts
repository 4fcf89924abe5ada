import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test from 'ava';

/** Runs `test/run.mjs` on built test files, without the addon. */
function run(...args: readonly string[]) {
  const env = { ...process.env, MESHCACHE_NATIVE: 'off', MESHCACHE_TEST_ADDON: '' };
  return spawnSync(process.execPath, ['test/run.mjs', ...args], { encoding: 'utf8', env });
}

test('left out: npm test says at its end what it has skipped, one line for each reason', (t) => {
  const { status, stdout } = run('build/test/native-copy.test.js', 'build/test/memory-mapped-region.test.js');
  t.is(status, 0, stdout);
  const lines = stdout.trim().split('\n');
  const [, all] = /^\s*(\d+) tests skipped$/m.exec(stdout) ?? [];
  const found = lines.map((line) => /^left out: (\d+) tests?, (.*)$/.exec(line)).filter((match) => match !== null);
  t.true(found.some(([, , reason]) => reason === 'MESHCACHE_NATIVE=off'));
  t.is(found.length, new Set(found.map(([, , reason]) => reason)).size);
  t.is(
    found.reduce((sum, [, count]) => sum + Number(count), 0),
    Number(all),
  );
  t.is(lines.at(-1), found.at(-1)?.[0], 'they come last');
  t.true((JSON.parse(readFileSync('package.json', 'utf8')).scripts.test as string).endsWith('node test/run.mjs'));
});

test('left out: a run that fails still fails', (t) => {
  t.is(run('build/test/no-such.test.js').status, 1);
});
