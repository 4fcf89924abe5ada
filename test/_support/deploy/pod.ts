import { type Differences, type Container as ImageContainer, memoryMount, type OciMount } from './image.js';
import { type Container, type Manifest, nodeOf, type Probe, settingsOf, type Workload } from './manifests.js';

/** What a pod gets from its cluster. */
export interface Surroundings {
  /** What the pod's own fields say, by their paths. */
  readonly fields: Readonly<Record<string, string>>;
  /** The data of Secrets, by their names and keys. */
  readonly secrets: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Writes a file for a container to see, and returns its folder. */
  writeFolder(files: Readonly<Record<string, string>>): Promise<string>;
}

/** How a container of the image differs to be the one with the node in this pod: what a kubelet makes of its manifest. */
export async function nodeContainer(
  manifests: readonly Manifest[],
  workload: Workload,
  surroundings: Surroundings,
): Promise<Differences & { readonly args: readonly string[] }> {
  const node = nodeOf(workload);
  return {
    entrypoint: node.command,
    args: node.args,
    user: 0,
    env: { ...settingsOf(manifests, workload), ...variablesOf(node, surroundings) },
    mounts: await mountsOf(workload, surroundings),
  };
}

function variablesOf({ env }: Container, { fields, secrets }: Surroundings): Record<string, string> {
  const textFor = ({ value, valueFrom }: Container['env'][number]): string | undefined => {
    if (value !== undefined) return value;
    const { fieldRef, secretKeyRef } = valueFrom;
    return fieldRef
      ? fields[fieldRef.fieldPath as string]
      : secrets[secretKeyRef?.name ?? '']?.[secretKeyRef?.key ?? ''];
  };
  return Object.fromEntries(
    env.map((variable) => {
      const value = textFor(variable);
      if (value === undefined) throw new Error(`nothing gives the value of ${variable.name}`);
      return [variable.name, value];
    }),
  );
}

/** Secrets are files of root, and all else is memory: a folder of the machine belongs to root, an `emptyDir` to all. */
async function mountsOf(workload: Workload, { secrets, writeFolder }: Surroundings): Promise<OciMount[]> {
  const { volumes } = workload.spec.template.spec;
  const mounts = nodeOf(workload).volumeMounts.map(async ({ name, mountPath: destination }): Promise<OciMount> => {
    const { secret, hostPath } = volumes.find((volume) => volume.name === name) ?? {};
    if (secret === undefined) return memoryMount(destination, hostPath === undefined ? '1777' : '0755');
    const data = secrets[secret.secretName] ?? {};
    const files = secret.items.map(({ key, path }) => [path, data[key] as string] as const);
    const source = await writeFolder(Object.fromEntries(files));
    return { destination, type: 'bind', source, options: ['bind', 'ro'] };
  });
  return Promise.all(mounts);
}

/**
 * Waits until a container passes the probe of a manifest, asked from within as the pod has an address of its own.
 * Resolves to false if the container ends before.
 */
export async function passes({ httpGet }: Probe, { ports }: Container, container: ImageContainer): Promise<boolean> {
  if (httpGet === undefined) throw new Error('this is no probe by HTTP');
  const port = ports.find(({ name }) => name === httpGet.port)?.containerPort;
  const url = `http://127.0.0.1:${port}${httpGet.path}`;
  const program = `while (!(await fetch('${url}').catch(() => ({}))).ok) await new Promise((next) => setTimeout(next, 100));`;
  return (await container.exec(['node', '--input-type=module', '-e', program])).status === 0;
}
