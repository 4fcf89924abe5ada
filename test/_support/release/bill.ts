import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Component } from './checks.js';

interface BillComponent {
  readonly type: string;
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version?: string;
  readonly purl: string;
  readonly scope: string;
  readonly properties?: readonly { readonly name: string }[];
  readonly licenses?: readonly { readonly license?: { readonly id?: string; readonly name?: string } }[];
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly dev?: boolean }>>;
}

/** A bill of materials in CycloneDX, as far as it is read here. */
export interface Bill {
  serialNumber?: string;
  metadata: { timestamp?: string; component: { name: string; purl: string; 'bom-ref': string } };
  components: BillComponent[];
  dependencies: { readonly ref: string; dependsOn: readonly string[] }[];
}

/** Packages of which a part is compiled into the WASM core and into the addon, and one that the dashboard has. */
export const COMPILED_IN: readonly string[] = ['assemblyscript', 'node-addon-api', 'node-api-headers', 'uplot'];

/** npm's bill of materials of everything in the lock file. */
function npmBill(): Bill {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only'];
  return JSON.parse(execFileSync('npm', args, { encoding: 'utf8', maxBuffer: 64 * 2 ** 20 })) as Bill;
}

/**
 * Packages that users install with this one, as `name version`. npm's own `--omit dev` leaves out those that packages
 * for development need, too.
 */
function dependencies(): string[] {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as Lock;
  return Object.entries(packages)
    .filter(([path, { dev }]) => path !== '' && dev !== true)
    .map(
      ([path, { version }]) => `${path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)} ${version}`,
    );
}

/**
 * Bill of materials of the npm package or of the wheel: `bundled` packages, whose code is in it, and those that are
 * installed with it. The same sources have the same bill: it has no time and no random number.
 */
export function billOf(bundled: ReadonlySet<string>, artefact: 'npm' | 'wheel'): Bill {
  const bill = npmBill();
  const parts = new Set([...bundled, ...(artefact === 'npm' ? dependencies() : [])]);
  const components = bill.components.filter(({ name, version }) => parts.has(`${name} ${version}`)).map(needed);
  const refs = new Set([...components.map((each) => each['bom-ref']), bill.metadata.component['bom-ref']]);
  bill.metadata.component.name = 'meshcache';
  bill.metadata.timestamp = undefined;
  bill.serialNumber = undefined;
  const links = bill.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) }));
  const made = { ...bill, components, dependencies: links };
  if (artefact === 'wheel') makeWheels(made);
  return made;
}

/** Npm calls a package one for development when such a package, too, has it. Scanners leave those out. */
function needed(component: BillComponent): BillComponent {
  const properties = component.properties?.filter(({ name }) => name !== 'cdx:npm:package:development') ?? [];
  return { ...component, scope: 'required', properties };
}

/** Makes a bill that of the wheel: a package of PyPI, with which pip installs Node from there. */
function makeWheels({ metadata: { component }, components, dependencies }: Bill): void {
  component.purl = component.purl.replace('pkg:npm/', 'pkg:pypi/');
  const name = /^NODE_REQUIREMENT = "([a-z-]+)/m.exec(readFileSync('src/python/backend.py', 'utf8'))?.[1] as string;
  const licenses = [{ license: { id: 'MIT' } }];
  // Without a version, because pip chooses it.
  components.push({ type: 'library', 'bom-ref': name, name, scope: 'required', licenses, purl: `pkg:pypi/${name}` });
  const root = dependencies.find(({ ref }) => ref === component['bom-ref']);
  if (root !== undefined) root.dependsOn = [...root.dependsOn, name];
  dependencies.push({ ref: name, dependsOn: [] });
}

export function componentsOf({ components }: Bill): Component[] {
  return components.map(({ name, version = '', licenses = [] }) => ({
    name,
    version,
    licences: licenses.map(({ license }) => license?.id ?? license?.name ?? 'unknown'),
  }));
}

/** The packages that notices name, as `name version`. */
export function noticed(notices: string): Set<string> {
  return new Set([...notices.matchAll(/^(\S+ \d\S*) \([\w.-]+\)$/gm)].map(([, name]) => name as string));
}
