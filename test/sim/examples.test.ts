import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test from 'ava';

/** What the README of an example promises. */
function promised(example: string): string {
  const readme = readFileSync(`examples/${example}/README.md`, 'utf8');
  return /```text\n([^`]*)```/.exec(readme)?.[1] ?? 'nothing';
}

for (const [example, program] of [
  ['sim-routing', 'routing.mjs'],
  ['sim-shapes', 'shapes.mjs'],
] as const) {
  test(`sim: the example ${example} prints what it promises`, (t) => {
    t.timeout(120_000);
    const output = execFileSync(process.execPath, [`examples/${example}/${program}`], { encoding: 'utf8' });
    t.is(output, promised(example));
  });
}
