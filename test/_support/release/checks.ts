/* Checks of a release. Each returns what is wrong, one sentence for each problem. */

/** Largest change of an artefact's size that needs no `--accept-contents`. */
const GROWTH_MAX_SHARE = 0.1;

/** Licences that allow their code to be shipped with this package, if the text comes along. */
const LICENCES: ReadonlySet<string> = new Set(['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT']);

/** Path in an artefact -> bytes. */
export type Contents = Readonly<Record<string, number>>;

export interface Component {
  readonly name: string;
  readonly version: string;
  readonly licences: readonly string[];
}

/** The version as Python writes it: 1.2.0-rc.1 is 1.2.0rc1. */
export function pythonVersion(version: string): string {
  return version.replace(/-([a-z]+)\.?(\d+)$/, '$1$2');
}

/** `places`: what states the version -> the version that it states. */
export function versionProblems(version: string, places: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(places)
    .filter(([, stated]) => stated !== version && stated !== pythonVersion(version))
    .map(([place, stated]) => `${place} has the version ${stated ?? '(none)'}; package.json has ${version}`);
}

/** The changelog must have entries for the version; only a dry run may have them under "Unreleased". */
export function changelogProblems(changelog: string, version: string, isDryRun: boolean): string[] {
  const sections = changelog.split(/^## /m).slice(1);
  const own = sections.find((section) => section.startsWith(`[${version}] - `));
  const section = own ?? (isDryRun ? sections.find((each) => each.startsWith('[Unreleased]')) : undefined);
  if (section === undefined) return [`CHANGELOG.md has no section "## [${version}] - date"; write it`];
  if (own !== undefined && !/^\S+ - \d{4}-\d{2}-\d{2}\n/.test(own)) {
    return [`CHANGELOG.md has no date of the form 2026-01-31 behind ${version}`];
  }
  return /^- \S/m.test(section) ? [] : [`CHANGELOG.md has no entry under "${section.split('\n')[0]}"; write one`];
}

/** Names of chunks change with their text, so all of them count as one file. */
export function comparable(files: readonly { readonly path: string; readonly size: number }[]): Contents {
  const contents: Record<string, number> = {};
  for (const { path, size } of files) {
    const name = path.replace(/chunk-[A-Z0-9]+\.js$/, 'chunk-*.js').replace(/-[\w.]+\.dist-info\//, '-*.dist-info/');
    contents[name] = (contents[name] ?? 0) + size;
  }
  return Object.fromEntries(Object.entries(contents).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Compares the files of an artefact with those of the last release. */
export function contentProblems(artefact: string, now: Contents, before: Contents | undefined): string[] {
  if (before === undefined)
    return [`${artefact} is not recorded yet; look at its files, then run with --accept-contents`];
  const problems = [
    ...Object.keys(now)
      .filter((path) => !(path in before))
      .map((path) => `${artefact} has a new file ${path}`),
    ...Object.keys(before)
      .filter((path) => !(path in now))
      .map((path) => `${artefact} has no file ${path} any more`),
  ];
  const [bytes, bytesBefore] = [totalBytes(now), totalBytes(before)];
  if (Math.abs(bytes / bytesBefore - 1) > GROWTH_MAX_SHARE) {
    problems.push(
      `${artefact} has ${bytes} bytes unpacked, ${bytesBefore} before; most by ${mostChanged(now, before)}`,
    );
  }
  return problems;
}

export function totalBytes(contents: Contents): number {
  return Object.values(contents).reduce((sum, bytes) => sum + bytes, 0);
}

function mostChanged(now: Contents, before: Contents): string {
  const change = (path: string) => (now[path] ?? 0) - (before[path] ?? 0);
  const paths = Object.keys({ ...before, ...now }).sort((a, b) => Math.abs(change(b)) - Math.abs(change(a)));
  return paths
    .slice(0, 3)
    .map((path) => `${path} (${change(path) > 0 ? '+' : ''}${change(path)})`)
    .join(', ');
}

/** `texts`: the notices that come with an artefact. */
export function licenceProblems(
  components: readonly Component[],
  bundled: ReadonlySet<string>,
  texts: string,
): string[] {
  return components.flatMap(({ name, version, licences }) => {
    const unknown = licences.length === 0 || !licences.every((licence) => LICENCES.has(licence));
    const problems = unknown
      ? [`${name} ${version} has the licence ${licences.join(', ') || '(none)'}; see whether it may be shipped`]
      : [];
    if (bundled.has(name) && !texts.includes(`${name} ${version} (`)) {
      problems.push(`the code of ${name} ${version} is shipped without the text of its licence`);
    }
    return problems;
  });
}
