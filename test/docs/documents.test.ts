import { spawnSync } from 'node:child_process';
import test from 'ava';
import { CONFIG_KEYS, MeshCacheConfig } from '../../src/config.js';
import { firstResultOf } from '../_support/docs/first-result.js';
import {
  anchorsOf,
  deadLinks,
  documents,
  fencesOf,
  linksOf,
  proseOf,
  rowsOf,
  textOf,
} from '../_support/docs/markdown.js';
import { guideOfWheel } from '../_support/package/wheel-guide.js';

const ADDR = '127.0.0.1:31990';
/** Variables that are no configuration keys. */
const OTHER_VARIABLES = [
  'PLATFORM',
  'ZIG',
  'LOG',
  'LOG_FORMAT',
  'SOCKET',
  'TOKEN_FILE',
  'NATIVE',
  'NO_RDMA',
  'PYTHON',
  'STRESS_SECONDS',
  'SOAK_SECONDS',
  'TEST_ADDON',
  'TRACE',
];
const README_MAX_LINES = 130;

const paths = documents();
const read = (path: string): string => textOf(path) as string;

test('docs: every link between documents leads to a file and a heading that exist', (t) => {
  t.true(paths.length > 30);
  t.true(paths.flatMap((path) => linksOf(read(path))).length > 100);
  for (const path of paths) t.deepEqual(deadLinks(path, textOf), [], path);
});

test('docs: a dead link is found', (t) => {
  const files = new Map([
    [
      'docs/a.md',
      '# A\n[b](b.md) [there](b.md#two-words-and-code) [self](#a) [no](c.md) [no](b.md#three) [web](https://x.org)',
    ],
    ['docs/b.md', '# B\n## Two words, and `code`\n```sh\n# three\n```\n'],
  ]);
  t.deepEqual(
    deadLinks('docs/a.md', (path) => files.get(path)),
    ['c.md', 'b.md#three'],
  );
  t.deepEqual([...anchorsOf('# Same\n# Same\n')], ['same', 'same-1']);
});

test('docs: the README is short, and leads to every document of docs', (t) => {
  const readme = read('README.md');
  t.true(readme.split('\n').length <= README_MAX_LINES);
  const linked = new Set(linksOf(readme).map((link) => link.replace(/#.*/, '')));
  for (const path of paths.filter((each) => each.startsWith('docs/'))) t.true(linked.has(path), path);
});

test('docs: files and folders that are named by their path exist', (t) => {
  for (const path of paths.filter((each) => !each.endsWith('PROTOCOL.md') && !each.startsWith('src/'))) {
    for (const [, named] of proseOf(read(path)).matchAll(/`((?:src|docs|deploy|examples|test)\/[\w./-]+)`/g))
      t.not(textOf(named as string), undefined, `${path}: ${named}`);
  }
});

test('docs: the configuration has every key once, no other, and the default that a node takes', (t) => {
  const rows = rowsOf(read('docs/configuration.md')).filter(([key]) => /^`[a-z][a-z_]+`$/.test(key ?? ''));
  const keys = rows.map(([key]) => (key as string).slice(1, -1));
  t.deepEqual([...keys].sort(), [...CONFIG_KEYS].sort());
  const defaults = MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR });
  for (const [i, key] of keys.entries()) {
    const given = /^`([^`]+)`$/.exec(rows[i]?.[1] ?? '')?.[1];
    if (given === undefined) continue;
    t.deepEqual(MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, [key]: given }), defaults, key);
  }
  const written = rows.filter(([, byDefault]) => byDefault?.startsWith('`'));
  t.true(written.length > 25);
});

test('docs: every variable of the environment that a document names is read by some program', (t) => {
  const known = new Set([...CONFIG_KEYS.map((key) => key.toUpperCase()), ...OTHER_VARIABLES]);
  for (const path of paths) {
    for (const [, name] of read(path).matchAll(/\bMESHCACHE_([A-Z][A-Z_]*[A-Z])\b/g))
      t.true(known.has(name as string), `${path}: MESHCACHE_${name}`);
  }
});

test('docs: every table of figures stands below the command that prints them', (t) => {
  const isFigure = (cell: string): boolean => /^\d*\.\d+$/.test(cell);
  let tables = 0;
  for (const path of paths.filter((each) => each === 'README.md' || each.startsWith('docs/'))) {
    for (const section of read(path).split(/^(?=#{1,3} )/m)) {
      if (!rowsOf(section).flat().some(isFigure)) continue;
      tables++;
      t.regex(proseOf(section), /`meshcache (bench|sim|replay|demo) ?/, `${path}: ${section.slice(0, 60)}`);
    }
  }
  t.true(tables >= 3);
});

test('docs: what an example or a guide prints is stated as text, and its programs have names', (t) => {
  for (const path of paths.filter((each) => each.startsWith('docs/guides/'))) {
    for (const { language, words, text, before } of fencesOf(read(path))) {
      t.true(['sh', 'js', 'json', 'text'].includes(language), `${path}: ${language}`);
      t.true(words.every((word) => word === 'not-run'));
      if (language === 'js') t.regex(before, /^`\w[\w-]*\.mjs`:$/, text);
      if (language === 'json') t.notThrows(() => MeshCacheConfig.fromExtraConfig(JSON.parse(text)));
    }
  }
});

test('docs: every guide says how many commands lead to its first result, by npm and by the wheel', (t) => {
  const guides = paths
    .filter((each) => /^docs\/(guides\/|kubernetes)/.test(each))
    .map((path) => [path, read(path)] as const);
  t.true(guides.length >= 4);
  for (const [name, guide] of [...guides, ['the wheel', guideOfWheel(read('docs/guides/llm-server.md'))] as const]) {
    const { promised, counted } = firstResultOf(guide);
    t.deepEqual(promised, counted, name);
    t.log(`${name}: ${counted.commands} commands, ${counted.programs} programs`);
  }
});

const hasCodespell = spawnSync('codespell', ['--version']).status === 0;
const withCodespell = hasCodespell ? test : test.skip;

withCodespell(
  `docs: codespell finds no misspelt word${hasCodespell ? '' : ' (skipped: there is no codespell)'}`,
  (t) => {
    const { status, stdout, stderr } = spawnSync('codespell', [...paths, 'deploy'], { encoding: 'utf8' });
    t.is(stdout + stderr, '');
    t.is(status, 0);
    t.not(spawnSync('codespell', ['-'], { input: 'recieve' }).stdout.length, 0, 'it does check');
  },
);
