import { existsSync, readFileSync } from 'node:fs';
import test from 'ava';

interface Step {
  readonly depth: number;
  readonly file: string;
  readonly name: string;
}

/** The ways that the document draws: steps by depth. */
function waysOf(document: string): Step[][] {
  const [, section = ''] = document.split('## The path of a call');
  const [own = ''] = section.split(/^## /m);
  return [...own.matchAll(/^```\n([\s\S]*?)^```/gm)].map(([, lines = '']) =>
    lines
      .trimEnd()
      .split('\n')
      .map((line) => {
        const [, indent = '', file = '', name = ''] = /^( *)(\S+\.ts) +(\w+)/.exec(line) ?? [];
        return { depth: indent.length / 2, file: `src/${file}`, name };
      }),
  );
}

/** The text of a method or function, up to the end of its block; undefined: the file has none of the name. */
function bodyOf(text: string, name: string): string | undefined {
  const begin = new RegExp(
    `^(  )?(?:export )?(?:async )?(?:function )?(?:readonly )?#?${name}(?:[(<]| = )[^;\\n]*$`,
    'm',
  );
  const found = begin.exec(text);
  if (found === null) return undefined;
  const rest = text.slice(found.index);
  const end = new RegExp(`^${found[1] ?? ''}\\}`, 'm').exec(rest);
  return rest.slice(0, end?.index ?? rest.length);
}

const DOCUMENT = readFileSync('docs/architecture.md', 'utf8');

test('ways: each step of the drawn ways is a function, which the one above it calls', (t) => {
  const ways = waysOf(DOCUMENT);
  t.true(ways.length >= 3);
  for (const way of ways) {
    const open: Step[] = [];
    for (const step of way) {
      const { file, name, depth } = step;
      t.true(existsSync(file), `${file} is drawn`);
      t.not(bodyOf(readFileSync(file, 'utf8'), name), undefined, `${file} has ${name}`);
      open.length = depth;
      const caller = open.at(-1);
      if (caller !== undefined) {
        const body = bodyOf(readFileSync(caller.file, 'utf8'), caller.name) ?? '';
        t.regex(body, new RegExp(`\\b${name}\\b`), `${caller.file} ${caller.name} calls ${name}`);
      }
      open.push(step);
    }
  }
});

test('ways: a lookup passes 15 files at most before it leaves the node', (t) => {
  const [reading = []] = waysOf(DOCUMENT);
  const leaves = reading.findIndex(({ file }) => file === 'src/rpc/client.ts');
  const files = new Set(reading.slice(0, leaves + 1).map(({ file }) => file));
  t.true(files.size <= 15, `${files.size} files`);
});
