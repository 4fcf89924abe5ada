import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';

export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly tcpSocket?: { readonly port: string };
}

export interface Container {
  readonly image: string;
  readonly command: string[];
  readonly args: string[];
  readonly envFrom: { readonly configMapRef: { readonly name: string } }[];
  readonly env: { readonly name: string; readonly valueFrom: Record<string, Record<string, string>> }[];
  readonly ports: { readonly name: string; readonly containerPort: number }[];
  readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: string[] } } };
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly resources: { readonly requests: Record<string, string>; readonly limits: Record<string, string | number> };
  readonly securityContext: { readonly capabilities: { readonly add?: string[]; readonly drop: string[] } };
  readonly volumeMounts: { readonly name: string; readonly mountPath: string }[];
}

export interface Volume {
  readonly name: string;
  readonly hostPath?: { readonly path: string; readonly type: string };
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
    readonly containers: [Container];
    readonly volumes: Volume[];
  };
}

export interface Manifests {
  readonly Namespace: { readonly metadata: { readonly name: string } };
  readonly Service: {
    readonly metadata: { readonly name: string };
    readonly spec: { clusterIP: string; selector: Record<string, string>; ports: { readonly port: number }[] };
  };
  readonly ConfigMap?: { readonly metadata: { readonly name: string }; readonly data: Record<string, string> };
  readonly DaemonSet: {
    readonly spec: {
      readonly selector: { readonly matchLabels: Record<string, string> };
      readonly template: PodTemplate;
    };
  };
}

/** The documents of a YAML text. Throws an error that has what is wrong with it. */
export function yamlDocuments(text: string): unknown[] {
  const documents = parseAllDocuments(text);
  if (!Array.isArray(documents)) return [];
  const wrong = documents.flatMap(({ errors, warnings }) => [...errors, ...warnings]);
  if (wrong.length > 0) throw new Error(wrong.map(({ message }) => message).join('\n'));
  return documents.map((document) => document.toJS());
}

/** The documents of a YAML text by their kind. */
export function manifestsOf(text: string): Manifests {
  const documents = yamlDocuments(text) as { kind: string }[];
  return Object.fromEntries(documents.map((content) => [content.kind, content])) as unknown as Manifests;
}

/** The variables of a file of `NAME=value` lines, as kustomize reads it. */
export function variablesOf(path: string): Record<string, string> {
  const lines = readFileSync(path, 'utf8').split('\n');
  const pairs = lines.filter((line) => line !== '' && !line.startsWith('#')).map((line) => line.split('='));
  return Object.fromEntries(pairs.map(([name, ...value]) => [name, value.join('=')]));
}

/** Whether this machine has kubectl, whose kustomize needs no cluster. */
export const hasKubectl = spawnSync('kubectl', ['kustomize', '--help']).status === 0;

/** What `kubectl apply -k` would send to a cluster. */
export function kustomized(folder: string): Manifests {
  const { status, stdout, stderr } = spawnSync('kubectl', ['kustomize', folder], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return manifestsOf(stdout);
}
