import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { buildImage, missingForImages } from '../_support/deploy/image.js';
import { fetchedWheels, wheelIn } from '../_support/package/wheels.js';
import { type Bill, billOf, COMPILED_IN, componentsOf, noticed } from '../_support/release/bill.js';
import { HELM, packChart } from '../_support/release/chart.js';
import * as checks from '../_support/release/checks.js';
import {
  manifestOfUser,
  nodeFor,
  OWN_PLATFORM,
  type PackedAddon,
  PLATFORMS,
  packAddons,
  packWithAddons,
} from '../_support/release/prebuilt.js';

/*
 * Makes the files of a release in build/release, and checks them: `npm run release -- --dry-run`. It publishes nothing.
 * Without --dry-run, the changelog must have the date of the version, package.json the addresses, and git no changes;
 * and the files must be those of the last release, unless they were accepted.
 */

const FOLDER = 'build/release';
const RECORD = 'test/release/contents.json';
const CHART = 'deploy/helm/meshcache';
const DEMO = ['demo', '--json', '--conversations', '4', '--page-bytes', '64kb', '--seconds', '20'];
const MAX_BUFFER_BYTES = 64 * 2 ** 20;

const { values: options } = parseArgs({
  options: { 'dry-run': { type: 'boolean', default: false }, 'accept-contents': { type: 'boolean', default: false } },
});
const isDryRun = options['dry-run'];
const json = (path: string) => JSON.parse(readFileSync(path, 'utf8'));
const { version } = json('package.json') as { version: string };
let problemCount = 0;

/** Prints the result of one check. `said`: what was found good. */
function report(subject: string, problems: readonly string[], said: string): void {
  problemCount += problems.length;
  if (problems.length === 0) console.log(`ok       ${subject}: ${said}`);
  for (const problem of problems) console.log(`problem  ${subject}: ${problem}`);
}

/** Prints the result of a check that a dry run need not pass, because it may be between two releases. */
function reportLater(subject: string, problems: readonly string[], said: string): void {
  if (!isDryRun || problems.length === 0) report(subject, problems, said);
  else for (const problem of problems) console.log(`later    ${subject}: ${problem}`);
}

/** Prints that this machine cannot make a file of the release. */
function leaveOut(subject: string, why: string): void {
  console.log(`left out ${subject}: ${why}`);
}

function run(program: string, args: readonly string[], cwd = '.', env: NodeJS.ProcessEnv = {}): string {
  const surroundings = { cwd, env: { ...process.env, ...env }, maxBuffer: MAX_BUFFER_BYTES };
  return execFileSync(program, args, { ...surroundings, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** The files of the wheel, and the text of one of them. */
function wheelFiles(path: string): { path: string; size: number }[] {
  const program =
    'import json, sys, zipfile; z = zipfile.ZipFile(sys.argv[1]);' +
    'print(json.dumps([{"path": i.filename, "size": i.file_size} for i in z.infolist()]))';
  return JSON.parse(run('python3', ['-c', program, path]));
}

function checkVersions(wheel: string, addons: readonly PackedAddon[]): void {
  const lock = json('package-lock.json');
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as Record<string, string>;
  const places = {
    'package-lock.json': lock.version,
    'the root of package-lock.json': lock.packages[''].version,
    'the wheel': /^meshcache-([^-]+)-/.exec(basename(wheel))?.[1],
    'the Python package': /^__version__.*"([^"]+)"$/m.exec(
      readFileSync('build/python/meshcache/_version.py', 'utf8'),
    )?.[1],
    'the command': run(process.execPath, ['build/dist/cli.js', '--version']).trim(),
    'the chart': chart.version,
    'the image of the chart': chart.appVersion,
    ...Object.fromEntries(addons.map((each) => [each.name, each.version])),
  };
  report('versions', checks.versionProblems(version, places), `${version} in ${Object.keys(places).length + 1} places`);
}

function checkContents(artefacts: Readonly<Record<string, checks.Contents>>): void {
  const before = existsSync(RECORD) ? (json(RECORD) as typeof artefacts) : {};
  if (options['accept-contents']) writeFileSync(RECORD, `${JSON.stringify({ ...before, ...artefacts }, null, 2)}\n`);
  for (const [name, contents] of Object.entries(artefacts)) {
    const said = `${Object.keys(contents).length} files, ${checks.totalBytes(contents)} bytes unpacked`;
    const problems = options['accept-contents'] ? [] : checks.contentProblems(`the ${name}`, contents, before[name]);
    reportLater(`contents of the ${name}`, problems, said);
  }
}

/** Installs a packed artefact into an empty folder by `install`, and has its demo check every byte that it reads. */
function use(name: string, install: (folder: string) => string[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-release-'));
  try {
    const [program, ...args] = install(folder) as [string, ...string[]];
    const result = JSON.parse(run(program, [...args, ...DEMO], folder)) as { wrong_bytes: number; prefix_hits: number };
    const isGood = result.wrong_bytes === 0 && result.prefix_hits > 0;
    const said = `installed, its demo read ${result.prefix_hits} pages, ${result.wrong_bytes} wrong bytes`;
    report(`use of the ${name}`, isGood ? [] : [said], said);
  } catch (error) {
    report(`use of the ${name}`, [`it cannot be used: ${(error as Error).message.trim().split('\n').at(-1)}`], '');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Installs the tarball on a platform; npm must bring the package with the addon for it, if it is one of `addons`, and no other. */
function installTarball(
  folder: string,
  tarball: string,
  addons: readonly PackedAddon[],
  platform = OWN_PLATFORM,
): string[] {
  writeFileSync(join(folder, 'package.json'), manifestOfUser(addons));
  const quick = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
  const [os, cpu, libc] = platform.split('-');
  const where = platform === OWN_PLATFORM ? [] : [`--os=${os}`, `--cpu=${cpu}`, `--libc=${libc}`];
  run('npm', ['install', ...quick, ...where, resolve(tarball)], folder);
  const scope = join(folder, 'node_modules/@meshcache');
  const brought = existsSync(scope) ? readdirSync(scope) : [];
  const fitting = addons.map((each) => each.platform).filter((each) => each === platform);
  if (brought.join() !== fitting.join()) throw new Error(`npm has brought the addon for ${brought.join() || 'none'}`);
  return [join(folder, 'node_modules/.bin/meshcache')];
}

/** As {@link installTarball}, without the addon of the tarball; the Node of the platform runs it. */
function installAddon(folder: string, tarball: string, addons: readonly PackedAddon[], platform: string): string[] {
  installTarball(folder, tarball, addons, platform);
  const own = join(folder, 'node_modules/meshcache');
  rmSync(join(own, 'build/native'), { recursive: true });
  const node = nodeFor(platform) as string;
  const asked = `import { HAS_RDMA } from 'meshcache/native'; console.log(HAS_RDMA);`;
  const found = run(node, ['--input-type=module', '-e', asked], folder).trim();
  const isFitting = addons.some((each) => each.platform === platform);
  if (found !== String(isFitting)) throw new Error(`the addon has RDMA: ${found}`);
  return [node, join(own, 'build/dist/cli.js')];
}

function installWheel(folder: string, wheel: string): string[] {
  const wheels = fetchedWheels();
  if (wheels.missing !== '') throw new Error(`what it needs from PyPI is missing: ${wheels.missing}`);
  run('python3', ['-m', 'venv', folder]);
  const found = ['--disable-pip-version-check', '--no-index', '--find-links', wheels.folder];
  run(join(folder, 'bin/pip'), ['install', '--quiet', ...found, resolve(wheel)]);
  return [join(folder, 'bin/meshcache')];
}

/** Brings the tools of a step, and builds with them. Without a network, the release goes without what they make. */
function prepare(program: string, args: readonly string[]): void {
  const { status } = spawnSync(program, args, { stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) console.log(`went on  ${[program, ...args].join(' ')} failed; see above`);
}

/** Packs the chart; the packed one must give the manifests that the folder gives. Returns its path; empty if it is not made. */
function makeChart(): string {
  if (!existsSync(HELM)) {
    leaveOut('chart', `there is no ${HELM}; test/deploy/tools.sh brings it`);
    return '';
  }
  const chart = join(FOLDER, `chart-meshcache-${version}.tgz`);
  packChart(CHART, chart);
  const [ours, theirs] = [CHART, chart].map((each) => run(HELM, ['template', 'meshcache', each]));
  const said = `${(theirs as string).match(/^kind: /gm)?.length} manifests, ${statSync(chart).size} bytes`;
  report('chart', ours === theirs ? [] : ['the packed chart gives other manifests than its folder'], said);
  return chart;
}

/** Builds the image, and runs the demo in it. Returns the path of its file; empty if it is not made. */
async function saveImage(): Promise<string> {
  const missing = missingForImages();
  if (missing !== '') {
    leaveOut('image', missing);
    return '';
  }
  const path = join(FOLDER, `image-meshcache-${version}.tar`);
  const image = await buildImage(run('git', ['rev-parse', 'HEAD']).trim());
  try {
    const { stdout, stderr } = await (await image.start(DEMO)).ended;
    const { wrong_bytes: wrong, prefix_hits: hits } = JSON.parse(stdout || '{}');
    await image.save(path);
    const said = `${statSync(path).size} bytes, its demo read ${hits} pages, ${wrong} wrong bytes`;
    report('image', wrong === 0 && hits > 0 ? [] : [`${said}: ${stderr}`], said);
  } finally {
    await image.remove();
  }
  return path;
}

/** Writes the bill of materials of an artefact, and checks the licences of what is in it. */
function bill(name: 'npm' | 'wheel', notices: string): Bill {
  const lock = json('package-lock.json').packages as Record<string, { version: string }>;
  const compiled = COMPILED_IN.map((each) => `${each} ${lock[`node_modules/${each}`]?.version}`);
  const bundled = noticed(notices);
  const made = billOf(new Set([...bundled, ...compiled]), name);
  writeFileSync(join(FOLDER, `meshcache-${version}.${name}.cdx.json`), `${JSON.stringify(made, null, 2)}\n`);
  const names = new Set([...bundled].map((each) => each.split(' ')[0] as string));
  const components = componentsOf(made);
  const unlisted = [...bundled, ...compiled].filter(
    (each) => !components.some((component) => `${component.name} ${component.version}` === each),
  );
  const problems = [
    ...unlisted.map((each) => `${each} is in the ${name} and not in the lock file`),
    ...checks.licenceProblems(components, names, notices),
  ];
  report(`licences of the ${name}`, problems, `${components.length} packages, ${bundled.size} of them bundled`);
  return made;
}

/** What only the release itself needs. */
function checkPublishing(): void {
  const missing: string[] = [];
  const check = (args: readonly string[], says: string): void => {
    try {
      run(process.execPath, args);
    } catch {
      missing.push(says);
    }
  };
  check(['test/package/check-addresses.mjs', 'package.json'], 'package.json lacks homepage, repository or bugs');
  if (run('git', ['status', '--porcelain']) !== '') missing.push('git has changes that are not committed');
  reportLater('publishing', missing, 'addresses are there, and git has no changes');
}

function writeChecksums(): void {
  const names = readdirSync(FOLDER).sort();
  const lines = names.map(
    (name) =>
      `${createHash('sha256')
        .update(readFileSync(join(FOLDER, name)))
        .digest('hex')}  ${name}`,
  );
  writeFileSync(join(FOLDER, 'SHA256SUMS'), `${lines.join('\n')}\n`);
  report('checksums', [], `${names.length} files in ${FOLDER}/SHA256SUMS`);
}

prepare('test/deploy/tools.sh', []);
prepare('test/native/platforms.sh', []);
prepare(process.execPath, ['build.config.mjs', 'prebuilt']);
rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
const addons = await packAddons(FOLDER);
const { tarball, files } = await packWithAddons(FOLDER, addons);
const builtWheel = wheelIn('build/wheel');
const wheel = join(FOLDER, basename(builtWheel));
copyFileSync(builtWheel, wheel);
checkVersions(wheel, addons);
const changelog = checks.changelogProblems(readFileSync('CHANGELOG.md', 'utf8'), version, isDryRun);
report('changelog', changelog, 'it has entries');
checkContents({
  tarball: checks.comparable(files),
  wheel: checks.comparable(wheelFiles(wheel)),
  ...Object.fromEntries(addons.map((each) => [each.platform, checks.comparable(each.files)])),
});
reportLater(
  'addon for each platform',
  PLATFORMS.filter((platform) => !addons.some((each) => each.platform === platform)).map(
    (platform) => `there is none for ${platform}; see the output of build.config.mjs prebuilt`,
  ),
  addons.map(({ platform, size }) => `${platform} ${size} bytes`).join(', '),
);
use('tarball', (folder) => installTarball(folder, tarball, addons));
for (const platform of new Set([OWN_PLATFORM, ...addons.map((each) => each.platform)])) {
  if (nodeFor(platform) === undefined) leaveOut(`use of ${platform}`, 'no Node for it; see test/native/platforms.sh');
  else use(`package for ${platform}`, (folder) => installAddon(folder, tarball, addons, platform));
}
use('wheel', (folder) => installWheel(folder, wheel));
const chart = makeChart();
const image = await saveImage();
bill('npm', readFileSync('build/dist/LICENSE-packages.txt', 'utf8'));
bill('wheel', readFileSync('build/wheel/project/LICENSE-packages.txt', 'utf8'));
writeChecksums();
checkPublishing();
if (problemCount > 0) {
  console.log(`${problemCount} ${problemCount === 1 ? 'problem' : 'problems'}: do not publish`);
  process.exitCode = 1;
} else {
  console.log(`${isDryRun ? 'With these, the release would be published by' : 'Publish by'}:`);
  for (const each of addons) console.log(`  npm publish ${each.tarball}`);
  console.log(`  npm publish ${tarball}\n  twine upload ${wheel}`);
  if (chart !== '') console.log(`  helm push ${chart} oci://REGISTRY`);
  if (image !== '') {
    const tag = `meshcache:${version}`;
    console.log(`  docker load --input ${image} && docker tag ${tag} REGISTRY/${tag} && docker push REGISTRY/${tag}`);
  }
}
