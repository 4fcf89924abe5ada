import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Component } from './checks.js';

interface BillComponent {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly licenses?: readonly { readonly license?: { readonly id?: string; readonly name?: string } }[];
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly dev?: boolean }>>;
}

/** A bill of materials in CycloneDX, as far as it is read here. */
export interface Bill {
  serialNumber?: string;
  metadata: { timestamp?: string; component: { name: string; 'bom-ref': string } };
  components: BillComponent[];
  dependencies: { readonly ref: string; readonly dependsOn: readonly string[] }[];
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
 * Bill of materials of an artefact: `bundled` packages, whose code is in it, and those that it depends on when
 * `withDependencies`. The same sources have the same bill: it has no time and no random number.
 */
export function billOf(bundled: ReadonlySet<string>, withDependencies: boolean): Bill {
  const bill = npmBill();
  const parts = new Set([...bundled, ...(withDependencies ? dependencies() : [])]);
  const components = bill.components.filter(({ name, version }) => parts.has(`${name} ${version}`));
  const refs = new Set([...components.map((each) => each['bom-ref']), bill.metadata.component['bom-ref']]);
  bill.metadata.component.name = 'meshcache';
  bill.metadata.timestamp = undefined;
  bill.serialNumber = undefined;
  const links = bill.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) }));
  return { ...bill, components, dependencies: links };
}

export function componentsOf({ components }: Bill): Component[] {
  return components.map(({ name, version, licenses = [] }) => ({
    name,
    version,
    licences: licenses.map(({ license }) => license?.id ?? license?.name ?? 'unknown'),
  }));
}

/** The packages that notices name, as `name version`. */
export function noticed(notices: string): Set<string> {
  return new Set([...notices.matchAll(/^(\S+ \d\S*) \([\w.-]+\)$/gm)].map(([, name]) => name as string));
}
