import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { CONFIG_KEYS, MeshCacheConfig } from '../../../src/config.js';

export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly tcpSocket?: { readonly port: string };
}

export interface Container {
  readonly name: string;
  readonly restartPolicy?: string;
  readonly image: string;
  readonly command: string[];
  readonly args: string[];
  readonly envFrom: { readonly configMapRef: { readonly name: string } }[];
  readonly env: {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom: Record<string, Record<string, string>>;
  }[];
  readonly ports: { readonly name: string; readonly containerPort: number }[];
  readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: string[] } } };
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly resources: { readonly requests: Record<string, string>; readonly limits: Record<string, string | number> };
  readonly securityContext: { readonly capabilities: { readonly add?: string[]; readonly drop: string[] } };
  readonly volumeMounts: { readonly name: string; readonly mountPath: string; readonly subPath?: string }[];
}

export interface Volume {
  readonly name: string;
  readonly hostPath?: { readonly path: string; readonly type: string };
  readonly emptyDir?: { readonly medium?: string; readonly sizeLimit?: string };
  readonly secret?: { readonly secretName: string; readonly items: { readonly key: string; readonly path: string }[] };
}

export interface PodTemplate {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: {
    readonly hostNetwork: boolean;
    readonly enableServiceLinks: boolean;
    readonly terminationGracePeriodSeconds: number;
    readonly nodeSelector: Record<string, string>;
    readonly tolerations: { readonly key: string; readonly operator: string; readonly effect: string }[];
    readonly initContainers?: Container[];
    readonly containers: [Container, ...Container[]];
    readonly volumes: Volume[];
  };
}

/** A pod with nodes in it: a DaemonSet or a StatefulSet. */
export interface Workload {
  readonly kind: 'DaemonSet' | 'StatefulSet';
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly selector: { readonly matchLabels: Record<string, string> };
    readonly template: PodTemplate;
    readonly volumeClaimTemplates?: readonly {
      readonly metadata: { readonly name: string };
      readonly spec: { readonly resources: { readonly requests: { readonly storage: string } } };
    }[];
  };
}

export interface ConfigMap {
  readonly kind: 'ConfigMap';
  readonly metadata: { readonly name: string };
  readonly data: Record<string, string>;
}

/** Any manifest. */
export interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels: Record<string, string> };
  readonly spec?: unknown;
}

/** The documents of a YAML text. Throws an error that has what is wrong with it. */
export function yamlDocuments(text: string): unknown[] {
  const documents = parseAllDocuments(text);
  if (!Array.isArray(documents)) return [];
  const wrong = documents.flatMap(({ errors, warnings }) => [...errors, ...warnings]);
  if (wrong.length > 0) throw new Error(wrong.map(({ message }) => message).join('\n'));
  return documents.map((document) => document.toJS());
}

/** Programs that test/deploy/tools.sh brings, or that are here anyway. */
const TOOLS = resolve('build/kubernetes/bin');
export const TOOLS_ENV = { ...process.env, PATH: `${TOOLS}:${process.env.PATH}` };
const BROUGHT = 'test/deploy/tools.sh brings it';

export interface ToolRun {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a tool to its end. */
export function tool(program: string, args: readonly string[], input = ''): ToolRun {
  return spawnSync(program, args, { encoding: 'utf8', input, env: TOOLS_ENV, maxBuffer: 2 ** 26 });
}

function missing(program: string, args: readonly string[]): string {
  return tool(program, args).status === 0 ? '' : `no ${program} that does; ${BROUGHT}`;
}

/** Why a test that needs the tool cannot run; empty if it can. */
export const noHelm = missing('helm', ['version']);
export const noKubectl = missing('kubectl', ['version', '--client']);
export const noValidator = noHelm || missing('kubernetes-validate', ['--version']);
/** The kustomize of older versions knows Helm 3 only. */
export const noKustomize = noHelm || missing('kubectl', ['kustomize', '--enable-helm', 'deploy/kubernetes/example']);

export const CHART = 'deploy/helm/meshcache';

/** Values, or their text in YAML. */
export type Values = string | Readonly<Record<string, unknown>>;

/** Runs `helm template` with these values, for a release of this name. */
export function helmTemplate(values: Values = {}, release = 'meshcache', namespace = 'meshcache'): ToolRun {
  const text = typeof values === 'string' ? values : JSON.stringify(values);
  return tool('helm', ['template', release, CHART, '--namespace', namespace, '--values', '-'], text);
}

/** The manifests that the chart makes of these values, for a release of this name. */
export function rendered(values: Values = {}, release?: string, namespace?: string): Manifest[] {
  return manifestsIn(textOf(helmTemplate(values, release, namespace)));
}

/** The manifests that kustomize makes of a folder. */
export function kustomized(folder: string): Manifest[] {
  return manifestsIn(textOf(tool('kubectl', ['kustomize', '--enable-helm', folder])));
}

function textOf({ status, stdout, stderr }: ToolRun): string {
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

/** The manifests of a text; a document may be empty. */
export function manifestsIn(text: string): Manifest[] {
  return yamlDocuments(text).filter((document) => document !== null) as Manifest[];
}

/** The only manifest of this kind, and of this name if one is given. */
export function only<T extends Manifest | Workload | ConfigMap>(
  manifests: readonly Manifest[],
  kind: string,
  name?: string,
): T {
  const found = manifests.filter((each) => each.kind === kind && (name ?? each.metadata.name) === each.metadata.name);
  if (found.length !== 1) throw new Error(`${found.length} of kind ${kind} and name ${name}`);
  return found[0] as unknown as T;
}

/** The pods with nodes. */
export function workloadsOf(manifests: readonly Manifest[]): Workload[] {
  const kinds = ['DaemonSet', 'StatefulSet'];
  return manifests.filter(({ kind }) => kinds.includes(kind)) as unknown as Workload[];
}

/** The container with the node of a pod. */
export function nodeOf({ spec }: Workload): Container {
  const { initContainers = [], containers } = spec.template.spec;
  const node = [...initContainers, ...containers].find(({ name }) => name === 'meshcache');
  if (node === undefined) throw new Error('the pod has no node');
  return node;
}

/** The settings of the node of a pod. */
export function settingsOf(manifests: readonly Manifest[], workload: Workload): Record<string, string> {
  const name = nodeOf(workload).envFrom[0]?.configMapRef.name;
  return only<ConfigMap>(manifests, 'ConfigMap', name).data;
}

/** A configuration of these variables, with what only a cluster knows. */
export function configOf(variables: Readonly<Record<string, string>>): MeshCacheConfig {
  const keys = Object.entries(variables).filter(([name]) => name !== 'MESHCACHE_LOG');
  const mapping = keys.map(([name, value]) => [name.replace(/^MESHCACHE_/, '').toLowerCase(), value] as const);
  for (const [key] of mapping) if (!CONFIG_KEYS.includes(key)) throw new Error(`${key} is no configuration key`);
  return MeshCacheConfig.fromExtraConfig({ discovery_addr: '10.0.0.1:18499', ...Object.fromEntries(mapping) });
}
