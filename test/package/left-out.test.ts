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
  const lines = stdout.trim().split('\n').slice(-2);
  t.regex(lines[0] ?? '', /\d+ tests skipped$/);
  t.regex(lines[1] ?? '', /^left out: \d+ tests, MESHCACHE_NATIVE=off$/);
  t.is(lines[0]?.match(/\d+/)?.[0], lines[1]?.match(/\d+/)?.[0]);
  t.true((JSON.parse(readFileSync('package.json', 'utf8')).scripts.test as string).endsWith('node test/run.mjs'));
});

test('left out: a run that fails still fails', (t) => {
  t.is(run('build/test/no-such.test.js').status, 1);
});
