import { execFileSync } from 'node:child_process';
import test from 'ava';
import { type NodeVersion, nodeVersions } from '../_support/package/node-versions.js';

const CLI = 'build/dist/cli.js';
const SEEDS = [3, 11];
const versions = nodeVersions();

function hashOf({ program }: NodeVersion, seed: number): string {
  const args = [CLI, 'sim', 'cluster', '--random', '--seed', String(seed), '--json'];
  const text = execFileSync(program, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  const { result } = JSON.parse(text) as { readonly result: { readonly hash: string; readonly events: number } };
  return `${result.hash} after ${result.events} events`;
}

const [own, ...others] = versions as [NodeVersion, ...NodeVersion[]];

test('sim: the same seed makes the same run in another process', (t) => {
  for (const seed of SEEDS) t.is(hashOf(own, seed), hashOf(own, seed), `seed ${seed}`);
});

test('sim: another seed makes another run', (t) => {
  t.not(hashOf(own, 3), hashOf(own, 4));
});

for (const other of others) {
  const title = `sim: the same seed makes the same run on ${own.name} and on ${other.name}`;
  if (other.missing !== '') {
    test.skip(`${title} (skipped: ${other.missing})`, () => {});
  } else {
    test(title, (t) => {
      for (const seed of SEEDS) t.is(hashOf(own, seed), hashOf(other, seed), `seed ${seed}`);
    });
  }
}
