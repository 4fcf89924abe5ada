// Prints how large the part of the source is that answers "may this page still be read?": lines, files, pieces of state, wire methods, words of its
// protocol. Run it as `node test/directory/size.mjs [folder of another checkout]`, to compare two.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';

const ROOT = process.argv[2] ?? new URL('../..', import.meta.url).pathname;
/** Folders and files of the directory, its upkeep in the node, and the statements of the store. */
const PARTS = [
  'src/directory',
  'src/node/upkeep',
  'src/node/warm/earlier-pages.ts',
  'src/node/warm/settled-start.ts',
  'src/store/ground/settling.ts',
  'src/store/announced.ts',
  'src/store/clearing.ts',
  'src/store/page-statements.ts',
  'src/store/placement/placement-clears.ts',
];
const METHODS = 'src/node/runtime/operator-access.ts';

function* sourcesIn(path) {
  if (!existsSync(path)) return;
  if (statSync(path).isFile()) yield path;
  else for (const name of readdirSync(path).sort()) yield* sourcesIn(join(path, name));
}

const sources = PARTS.flatMap((part) => [...sourcesIn(join(ROOT, part))]).filter((path) => path.endsWith('.ts'));
let lines = 0;
let codeLines = 0;
let state = 0;
for (const path of sources) {
  const text = readFileSync(path, 'utf8');
  lines += text.split('\n').length - 1;
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').split('\n');
  codeLines += code.filter((line) => line.trim() !== '' && !line.trim().startsWith('//')).length;
  // What changes while a node runs: fields that are assigned again, and tables that are filled.
  const fields = text.match(/^ {2}(readonly )?#\w+(: [^=;]*)?( =|;)[^\n]*/gm) ?? [];
  state += fields.filter(
    (field) => !field.startsWith('  readonly') || /new (Map|Set|PeerQueue|Removals)\b|= \[\]/.test(field),
  ).length;
}
const methods = readFileSync(join(ROOT, METHODS), 'utf8').match(/'(directory|pages|placement)\.\w+'/g) ?? [];
const protocol = join(ROOT, 'src/directory/PROTOCOL.md');
const words = readFileSync(protocol, 'utf8')
  .split(/\s+/)
  .filter((word) => /\w/.test(word)).length;

console.log(`${sources.length} files, ${lines} lines, ${codeLines} of them code, ${state} fields that change`);
console.log(`${methods.length} wire methods: ${methods.map((name) => name.slice(1, -1)).join(', ')}`);
console.log(`${words} words in ${relative(ROOT, protocol)}`);
