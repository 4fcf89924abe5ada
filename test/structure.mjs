// Prints how the source is cut: files, exports, callbacks and other figures of its structure. Run it as
// `node test/structure.mjs [folder of another checkout]`, to compare two.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const ROOT = resolve(process.argv[2] ?? new URL('..', import.meta.url).pathname);

function sources(folder) {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(ROOT, folder, name))
    .map((path) => ({ path, text: readFileSync(path, 'utf8') }));
}

const src = sources('src');
const countOf = (pattern, among = src) => among.reduce((sum, { text }) => sum + (text.match(pattern)?.length ?? 0), 0);
const linesOf = ({ text }) => text.split('\n').length - 1;
const inRooms = (...rooms) => src.filter(({ path }) => rooms.some((room) => path.startsWith(join(ROOT, 'src', room))));
const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

/** Path of a module -> paths of those that import it. */
const importers = new Map();
for (const { path, text } of src) {
  const named = [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)\.js'/g)].map(([, name]) => name);
  for (const name of new Set(named)) {
    const imported = `${resolve(dirname(path), name)}.ts`;
    importers.set(imported, [...(importers.get(imported) ?? []), path]);
  }
}
const ofOne = src.filter(({ path }) => importers.get(path)?.length === 1);

/** The names that a module of exports re-exports, types included, and those of the modules that it exports whole. */
function namesFrom(path) {
  if (!existsSync(path)) return [];
  const text = readFileSync(path, 'utf8');
  const listed = [...text.matchAll(/export (?:type )?\{([^}]*)\}/g)].flatMap(([, list]) => list.split(','));
  const whole = [...text.matchAll(/export \* from '(\.[^']+)\.js'/g)].flatMap(([, name]) =>
    namesFrom(`${resolve(dirname(path), name)}.ts`),
  );
  const own = [...text.matchAll(/^export (?:abstract )?(?:class|const|function|interface|type) (\w+)/gm)];
  return [...listed.map((name) => name.trim()).filter((name) => name !== ''), ...whole, ...own.map(([, name]) => name)];
}

const folders = new Map();
for (const { path } of src) folders.set(dirname(path), (folders.get(dirname(path)) ?? 0) + 1);
const comments = src.flatMap(({ text }) => text.split('\n').filter((line) => /^\s*(\/\*\*|\*|\/\/)/.test(line)));

/** Number of assertions in functions that the product calls: those whose name has no `verify`. */
function assertionsOutsideOfVerify(text) {
  let name = '';
  let count = 0;
  for (const line of text.split('\n')) {
    const begun = /^ {2}(?:async |static )?\*?#?(\w+)\(.*\{$|^(?:export )?(?:async )?function (\w+)/.exec(line);
    if (begun !== null) name = begun[1] ?? begun[2];
    if (/\b(?:assert|assertEqual|assertAtMost|reduced)\(/.test(line) && !/^(?:export )?function/.test(line)) {
      if (!/verify/i.test(name)) count++;
    }
  }
  return count;
}

const figures = {
  files: src.length,
  lines: sum(src.map(linesOf)),
  'files of 472 lines and more': src.filter((file) => linesOf(file) >= 472).length,
  'files below 40 lines': src.filter((file) => linesOf(file) < 40).length,
  'files with one importer': ofOne.length,
  'of these below 80 lines': ofOne.filter((file) => linesOf(file) < 80).length,
  'folders of one or two files': [...folders.values()].filter((count) => count <= 2).length,
  'callbacks (on…) of interfaces': countOf(/^\s+(?:readonly )?on[A-Z]\w*\??[:(]/gm),
  'of these in store and node': countOf(/^\s+(?:readonly )?on[A-Z]\w*\??[:(]/gm, inRooms('store', 'node')),
  'interfaces …Parts': countOf(/interface \w+Parts\b/g),
  'Pick<>': countOf(/\bPick</g),
  'assertions that are always on': sum(src.map(({ text }) => assertionsOutsideOfVerify(text))),
  'boolean fields': countOf(/^\s+(?:readonly )?#?\w+(?:: boolean;| = (?:true|false);)/gm),
  'lines that put a node together': sum(
    src
      .filter(({ path }) =>
        /wiring|store-parts|node-parts|node-network|node-runtime|meshcache-store|node\/(doors|node|store-\w+)\.ts/.test(
          path,
        ),
      )
      .map(linesOf),
  ),
  'lines of the doors and their connections': sum(
    src.filter(({ path }) => /src\/(rpc\/server|clients\/[^/]+$|resp\/[^/]+$|net\/served\/)/.test(path)).map(linesOf),
  ),
  'lines by which nodes hold pages': sum(
    src
      .filter(({ path }) =>
        /store\/(copies|placement|holding|pins\/pinning)|promoter|node\/(placing|holding|leaving|store-|remote-pages\/promotions)|handovers/.test(
          path,
        ),
      )
      .map(linesOf),
  ),
  'wire methods': new Set(
    src
      .filter(({ path }) => /method-callers|operator-access/.test(path))
      .flatMap(({ text }) => text.match(/^ {2}'\w+\.\w+'(?=:)/gm) ?? []),
  ).size,
  'names of the main entry': new Set(namesFrom(join(ROOT, 'src/index.ts'))).size,
  'comment lines longer than 120 columns': comments.filter((line) => line.length > 120).length,
  'longest comment line': Math.max(...comments.map((line) => line.length)),
};
for (const [name, value] of Object.entries(figures)) console.log(`${String(value).padStart(7)}  ${name}`);
