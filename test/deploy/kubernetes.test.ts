import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { LOG_LEVELS } from '../../src/base/environment/log.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { collect, firstLine, startCli } from '../_support/cli/run-cli.js';
import {
  configOf,
  kustomized,
  type Manifest,
  manifestsIn,
  nodeOf,
  noHelm,
  noKustomize,
  only,
  rendered,
  settingsOf,
  type Workload,
} from '../_support/deploy/manifests.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';
import { tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

const FOLDER = 'deploy/kubernetes';
const CONTAINERFILE = 'deploy/Containerfile';
/** The longest that a node takes to end after SIGTERM, by its own help. */
const END_MAX_SECONDS = 5;
/** The longest that a drained node serves late readers: a heartbeat interval. */
const LINGER_MAX_SECONDS = 2;
/** Kubernetes gives these ports to Services. */
const NODE_PORTS = { first: 30_000, last: 32_767 };

interface Service extends Manifest {
  readonly spec: {
    readonly clusterIP: string;
    readonly selector: Record<string, string>;
    readonly ports: readonly { readonly port: number }[];
  };
}

/** Why no pool can be kept here; empty if one can. */
const noAddon = loadNative().reason;

/** Adds a test of what the chart makes of its own values. */
const withHelm = unless(noHelm);

/** The DaemonSet of the chart's own values, its node, and the settings of that. */
function inference() {
  const manifests = rendered();
  const daemonSet = only<Workload>(manifests, 'DaemonSet');
  const { metadata, spec } = daemonSet.spec.template;
  return {
    manifests,
    daemonSet,
    metadata,
    spec,
    container: nodeOf(daemonSet),
    settings: settingsOf(manifests, daemonSet),
  };
}

function portsOf(variables: Readonly<Record<string, string>>): number[] {
  return Object.entries(variables).flatMap(([name, value]) => (name.endsWith('_PORT') ? [Number(value)] : []));
}

/** The text of the file with the example's commands. */
const documented = readFileSync(`${FOLDER}/example/values.yaml`, 'utf8');

test('deploy, Kubernetes: uninstalling nodes does not delete the namespace and the Secret of all', (t) => {
  // Cause: `kubectl delete -k storage` deleted the namespace of its base, with the Secret and all other nodes.
  const namespace = manifestsIn(readFileSync(`${FOLDER}/namespace/namespace.yaml`, 'utf8'));
  t.like(namespace, [{ kind: 'Namespace', metadata: { name: 'meshcache' } }]);
  for (const text of [readFileSync('docs/kubernetes.md', 'utf8'), documented])
    t.true(text.includes('kubectl apply -k deploy/kubernetes/namespace\n'));
});

unless(noKustomize)('deploy, Kubernetes: kustomize makes of the example what Helm makes of it', (t) => {
  const sorted = (manifests: readonly Manifest[]) =>
    [...manifests].sort((one, other) => one.kind.localeCompare(other.kind));
  const byHelm = rendered(documented);
  t.deepEqual(sorted(kustomized(`${FOLDER}/example`)), sorted(byHelm));
  t.deepEqual(
    manifestsIn(readFileSync(`${FOLDER}/namespace/namespace.yaml`, 'utf8')),
    kustomized(`${FOLDER}/namespace`),
  );
  t.false(byHelm.some(({ kind }) => ['Namespace', 'Secret'].includes(kind)));
});

withHelm('deploy, Kubernetes: labels, settings, volumes and the Secret fit together', (t) => {
  const { manifests, daemonSet, metadata, spec, container, settings } = inference();
  t.deepEqual(daemonSet.spec.selector.matchLabels, metadata.labels);
  const service = only<Service>(manifests, 'Service');
  t.like(metadata.labels, service.spec.selector);
  t.is(service.spec.clusterIP, 'None');
  const volumes = new Set(spec.volumes.map(({ name }) => name));
  for (const { name } of container.volumeMounts) t.true(volumes.has(name), name);
  const { name, namespace } = service.metadata;
  t.is(settings.MESHCACHE_DISCOVERY_ADDR, `dns://${name}.${namespace}.svc.cluster.local:18499`);

  // The documented commands make exactly the keys that the DaemonSet uses.
  const secret = spec.volumes.find(({ name }) => name === 'cluster-secret')?.secret;
  const token = container.env.find(({ name }) => name === 'MESHCACHE_METRICS_TOKEN')?.valueFrom.secretKeyRef;
  t.deepEqual([secret?.secretName, token?.name], ['meshcache', 'meshcache']);
  for (const text of [documented, readFileSync('docs/kubernetes.md', 'utf8')]) {
    const made = [...text.matchAll(/--from-literal=([\w-]+)="\$\(openssl rand -hex 32\)"/g)].map(([, key]) => key);
    t.deepEqual([...(secret?.items ?? []).map(({ key }) => key), token?.key], made);
    t.notRegex(text, /change-?me/i);
  }
  const mounted = container.volumeMounts.find(({ name }) => name === 'cluster-secret')?.mountPath ?? '';
  t.is(settings.MESHCACHE_CLUSTER_SECRET_FILE, join(mounted, secret?.items[0]?.path ?? ''));
});

withHelm('deploy, Kubernetes: every setting is a key with an allowed value, and its folders are mounted', (t) => {
  const { spec, container, settings } = inference();
  t.true(LOG_LEVELS.includes(settings.MESHCACHE_LOG as string));
  const config = configOf({ ...settings, ...Object.fromEntries(container.env.map(({ name }) => [name, '10.0.0.1'])) });
  for (const folder of [config.diskPath, dirname(config.poolPath as string), dirname(config.clientSocket as string)])
    t.true(
      container.volumeMounts.some(({ mountPath }) => mountPath === folder),
      folder,
    );
  // Pods of engines mount the same folder of the machine.
  const sockets = container.volumeMounts.find(({ mountPath }) => mountPath === dirname(config.clientSocket as string));
  const volume = spec.volumes.find(({ name }) => name === sockets?.name);
  t.like(volume, { hostPath: { path: sockets?.mountPath, type: 'DirectoryOrCreate' } });
});

withHelm('deploy, Kubernetes: all ports are fixed, are those of the settings, and no Service can have them', (t) => {
  const { manifests, metadata, container, settings } = inference();
  const byName = Object.fromEntries(container.ports.map(({ name, containerPort }) => [name, String(containerPort)]));
  t.deepEqual(byName, {
    discovery: settings.MESHCACHE_DISCOVERY_PORT,
    control: settings.MESHCACHE_CONTROL_PORT,
    data: settings.MESHCACHE_TCP_PORT,
    metrics: settings.MESHCACHE_METRICS_PORT,
  });
  const ports = portsOf(settings);
  t.is(new Set(ports).size, 5);
  for (const port of ports) t.true(port > 1024 && (port < NODE_PORTS.first || port > NODE_PORTS.last), String(port));

  t.like(container.readinessProbe, { httpGet: { path: '/healthz', port: 'metrics' } });
  t.like(container.livenessProbe, { tcpSocket: { port: 'metrics' } });
  t.deepEqual(
    { ...metadata.annotations, 'meshcache/settings': undefined },
    {
      'prometheus.io/scrape': 'true',
      'prometheus.io/port': settings.MESHCACHE_METRICS_PORT,
      'prometheus.io/path': '/metrics',
      'meshcache/settings': undefined,
    },
  );
  t.deepEqual(
    only<Service>(manifests, 'Service').spec.ports.map(({ port }) => String(port)),
    [settings.MESHCACHE_METRICS_PORT],
  );
});

withHelm('deploy, Kubernetes: machines with GPUs take the pod, and it has time for its drain', (t) => {
  const { spec, container } = inference();
  t.deepEqual(Object.keys(spec.nodeSelector), ['nvidia.com/gpu.present']);
  t.deepEqual(spec.tolerations, [{ key: 'nvidia.com/gpu', operator: 'Exists', effect: 'NoSchedule' }]);
  t.true(spec.hostNetwork);
  // Else a service named meshcache-metrics would set MESHCACHE_METRICS_PORT.
  t.false(spec.enableServiceLinks);
  t.deepEqual(container.securityContext.capabilities, { drop: ['ALL'] });
  const drainSeconds = Number(/--timeout (\d+)$/.exec(container.lifecycle.preStop.exec.command.join(' '))?.[1]);
  t.true(spec.terminationGracePeriodSeconds > drainSeconds + LINGER_MAX_SECONDS + 2 * END_MAX_SECONDS);
});

/** A node as the DaemonSet starts it, with more variables, and its `preStop`. */
async function startedPod(t: ExecutionContext, more: Readonly<Record<string, string>> = {}) {
  const { container, settings } = inference();
  t.deepEqual(container.command, ['meshcache']);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-deploy-'));
  const memory = mkdtempSync('/dev/shm/meshcache-deploy-');
  t.teardown(() => {
    for (const path of [folder, memory]) rmSync(path, { recursive: true, force: true });
  });
  writeFileSync(join(folder, 'secret'), 'a secret of a test\n');
  const here = {
    MESHCACHE_DISCOVERY_ADDR: `127.0.0.1:${await freePort()}`,
    MESHCACHE_NODE_ID: 'machine-1',
    MESHCACHE_LOCAL_HOSTNAME: '127.0.0.1',
    MESHCACHE_METRICS_HOST: '127.0.0.1',
    MESHCACHE_METRICS_TOKEN: 'token',
    MESHCACHE_CLUSTER_SECRET_FILE: join(folder, 'secret'),
    MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb',
    MESHCACHE_POOL_PATH: join(memory, 'pool'),
    MESHCACHE_DISK_PATH: join(folder, 'disk'),
    MESHCACHE_DISK_SIZE: '8mb',
    MESHCACHE_CLIENT_SOCKET: join(folder, 'node.sock'),
  };
  // Every variable that this machine cannot have is replaced, and so are the ports.
  for (const { name } of container.env) t.true(name in here, name);
  const ports = Object.keys(settings).filter((name) => name.endsWith('_PORT') && name !== 'MESHCACHE_DISCOVERY_PORT');
  const { MESHCACHE_POOL_PATH, ...withoutAddon } = { ...settings, ...here };
  const kept: Record<string, string> = noAddon === '' ? { MESHCACHE_POOL_PATH } : {};
  const env = { ...withoutAddon, ...kept, ...more, ...Object.fromEntries(ports.map((name) => [name, '0'])) };
  // The image has the command on its PATH.
  const program = fileURLToPath(new URL('./cli.js', import.meta.url));
  writeFileSync(join(folder, 'meshcache'), `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`, {
    mode: 0o755,
  });
  const inImage = { ...process.env, ...env, PATH: `${folder}:${process.env.PATH}` };
  const start = async () => {
    const child = startCli(container.args, { env });
    t.teardown(() => child.kill('SIGKILL'));
    const ended = collect(child);
    const ready = JSON.parse(await firstLine(child)) as Record<string, unknown>;
    t.like(ready, { node_id: 'machine-1', client_socket: here.MESHCACHE_CLIENT_SOCKET });
    const probe = `http://${ready.metrics_endpoint}${container.readinessProbe.httpGet?.path}`;
    t.is((await fetch(probe)).status, 200);
    return { ended, ready };
  };
  const exec = (command: readonly string[], variables: Readonly<Record<string, string>> = {}) => {
    const [shell, ...words] = command as [string, ...string[]];
    return promisify(execFile)(shell, words, { env: { ...inImage, ...variables } });
  };
  const drain = (variables: Readonly<Record<string, string>> = {}) =>
    exec(container.lifecycle.preStop.exec.command, variables);
  return { drain, exec, start, folder, ...(await start()) };
}

withHelm('deploy, Kubernetes: its commands work: the probe finds the node, and preStop drains it', async (t) => {
  const { drain, ended, ready } = await startedPod(t);
  t.true((ready.disk_bytes as number) > 0);
  t.regex((await drain()).stdout, /machine-1/);
  t.is((await ended).status, 0);
});

unless(noHelm || noAddon)('deploy, Kubernetes: the pod that replaces one finds its pages in memory', async (t) => {
  const { drain, ended, exec, start, folder } = await startedPod(t, { MESHCACHE_DISK_ENABLED: 'false' });
  const file = join(folder, 'page');
  writeFileSync(file, 'a page of before the update');
  const attached = { MESHCACHE_SOCKET: join(folder, 'node.sock') };
  await exec(['meshcache', 'put', 'some-page', file], attached);
  await drain();
  t.is((await ended).status, 0);
  await start();
  t.is((await exec(['meshcache', 'get', 'some-page'], attached)).stdout, 'a page of before the update');
});

withHelm('deploy, Kubernetes: with users, preStop drains the node with the token of a Secret', async (t) => {
  const users = new UsersFile(t, userNamed('drainer'));
  const { drain, ended } = await startedPod(t, { MESHCACHE_USERS_FILE: users.path });
  await t.throwsAsync(drain(), { message: /drain/ });
  const token = `${users.path}.token`;
  writeFileSync(token, tokenOf('drainer'), { mode: 0o600 });
  const daemonSet = only<Workload>(rendered({ secret: { drainTokenKey: 'drainer' } }), 'DaemonSet');
  const secret = daemonSet.spec.template.spec.volumes.find(({ name }) => name === 'cluster-secret')?.secret;
  const path = secret?.items.find(({ key }) => key === 'drainer')?.path;
  const variable = nodeOf(daemonSet).env.find(({ value }) => value === `/etc/meshcache/${path}`);
  t.regex((await drain({ [variable?.name ?? '']: token })).stdout, /machine-1/);
  t.is((await ended).status, 0);
});

test('deploy, container: the file names paths, scripts and a command that exist', (t) => {
  const lines = readFileSync(CONTAINERFILE, 'utf8').replaceAll(/\\\n/g, ' ').split('\n');
  const instructions = lines.filter((line) => /^[A-Z]+ /.test(line)).map((line) => line.split(/ +/));
  const stages = instructions.filter(([name]) => name === 'FROM').map(([, image]) => image);
  t.deepEqual(stages, [`\${NODE_IMAGE}`, `\${NODE_IMAGE}`, 'scratch']);
  const [, base] = instructions.find(([name, value]) => name === 'ARG' && value?.startsWith('NODE_IMAGE=')) ?? [];
  t.regex(base ?? '', /^NODE_IMAGE=docker\.io\/library\/node:22-bookworm-slim@sha256:[0-9a-f]{64}$/);
  const { scripts, bin, engines, version, name } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.is(engines.node, '>=20.19');
  for (const [, ...words] of instructions.filter(([first, second]) => first === 'COPY' && !second?.startsWith('--')))
    for (const path of words.slice(0, -1)) t.true(existsSync(path), path);
  t.is(scripts.prepack, 'npm run build && npm run build:native');
  const [, tarball] = readFileSync(CONTAINERFILE, 'utf8').match(/ \/tmp\/(meshcache\S+)$/m) ?? [];
  t.regex(`${name}-${version}.tgz`, new RegExp(`^${tarball?.replace('.', '\\.').replace('*', '.*')}$`));
  t.deepEqual(
    instructions.filter(([first]) => first === 'ENTRYPOINT' || first === 'CMD').map(([, argument]) => argument),
    [JSON.stringify(Object.keys(bin)), '["node"]'],
  );
  // What a clone has been built into must not be taken for what the image is built from.
  for (const path of ['.git', 'build', 'node_modules'])
    t.true(readFileSync('.dockerignore', 'utf8').split('\n').includes(path), path);
});
