import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { LOG_LEVELS } from '../../src/base/environment/log.js';
import { parseSize } from '../../src/base/sizes.js';
import { CONFIG_KEYS, MeshCacheConfig } from '../../src/config.js';
import { collect, firstLine, startCli } from '../_support/cli/run-cli.js';
import {
  type Container,
  hasKubectl,
  kustomized,
  manifestsOf,
  variablesOf,
  yamlDocuments,
} from '../_support/deploy/manifests.js';
import { freePort } from '../_support/support.js';
import { tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

const FOLDER = 'deploy/kubernetes';
const CONTAINERFILE = 'deploy/Containerfile';
/** The longest that a node takes to end after SIGTERM, by its own help. */
const END_MAX_SECONDS = 5;
/** The longest that a drained node serves late readers: a heartbeat interval. */
const LINGER_MAX_SECONDS = 2;
/** Kubernetes gives these ports to Services. */
const NODE_PORTS = { first: 30_000, last: 32_767 };

const settings = variablesOf(`${FOLDER}/base/meshcache.env`);
const texts = ['namespace/namespace', 'base/service', 'base/daemonset'].map((name) =>
  readFileSync(`${FOLDER}/${name}.yaml`, 'utf8'),
);
const { Namespace, Service, DaemonSet } = manifestsOf(texts.join('---\n'));
const { metadata, spec } = DaemonSet.spec.template;
const [container] = spec.containers;

function portsOf(variables: Readonly<Record<string, string>>): number[] {
  return Object.entries(variables).flatMap(([name, value]) => (name.endsWith('_PORT') ? [Number(value)] : []));
}

/** A configuration of these variables, with what only a cluster knows. */
function configOf(variables: Readonly<Record<string, string>>): MeshCacheConfig {
  const keys = Object.entries(variables).filter(([name]) => name !== 'MESHCACHE_LOG');
  const mapping = keys.map(([name, value]) => [name.replace(/^MESHCACHE_/, '').toLowerCase(), value] as const);
  for (const [key] of mapping) if (!CONFIG_KEYS.includes(key)) throw new Error(`${key} is no configuration key`);
  return MeshCacheConfig.fromExtraConfig({ discovery_addr: '10.0.0.1:18499', ...Object.fromEntries(mapping) });
}

/** Checks that the pool and 1 GiB more fit into the memory of the container. */
function assertFits(t: ExecutionContext, config: MeshCacheConfig, { resources }: Container): void {
  for (const memory of [resources.requests.memory, resources.limits.memory]) {
    const bytes = parseSize(String(memory).replace('Gi', 'gb')) as number;
    t.true(config.globalSegmentSize + 2 ** 30 <= bytes, `${config.globalSegmentSize} in ${memory}`);
  }
}

test('deploy, Kubernetes: every file is YAML, and every file that a kustomization names exists', (t) => {
  const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.yaml'));
  t.true(files.length >= 7);
  for (const file of files) {
    const documents = yamlDocuments(readFileSync(join(FOLDER, file), 'utf8'));
    t.is(documents.length, 1, file);
    if (!file.endsWith('kustomization.yaml')) continue;
    const { resources, configMapGenerator, patches } = documents[0] as {
      resources: string[];
      configMapGenerator?: { envs?: string[] }[];
      patches?: { path?: string }[];
    };
    const named = [...resources, ...(configMapGenerator ?? []).flatMap(({ envs }) => envs ?? [])];
    for (const path of [...named, ...(patches ?? []).flatMap(({ path }) => path ?? [])])
      t.true(existsSync(join(FOLDER, dirname(file), path)), `${file}: ${path}`);
  }
});

/** The kinds of everything that a folder applies and deletes, with what it builds on. */
function kindsOf(folder: string): string[] {
  const [{ resources }] = yamlDocuments(readFileSync(join(folder, 'kustomization.yaml'), 'utf8')) as [
    { readonly resources: readonly string[] },
  ];
  return resources.flatMap((name) => {
    if (!name.endsWith('.yaml')) return kindsOf(join(folder, name));
    return yamlDocuments(readFileSync(join(folder, name), 'utf8')).map((each) => (each as { kind: string }).kind);
  });
}

test('deploy, Kubernetes: deleting some of the nodes does not delete the namespace of all', (t) => {
  // Cause: `kubectl delete -k storage` deleted the namespace of its base, with the Secret and all other nodes.
  t.deepEqual(kindsOf(`${FOLDER}/namespace`), ['Namespace']);
  const others = readdirSync(FOLDER).filter((name) => name !== 'namespace');
  for (const name of others) t.deepEqual(kindsOf(join(FOLDER, name)).sort(), ['DaemonSet', 'Service'], name);
  t.deepEqual(others.sort(), ['base', 'example', 'rdma', 'storage']);
  for (const file of ['docs/operations.md', `${FOLDER}/example/kustomization.yaml`])
    t.true(readFileSync(file, 'utf8').includes('kubectl apply -k deploy/kubernetes/namespace\n'), file);
});

test('deploy, Kubernetes: labels, settings, volumes and the Secret fit together', (t) => {
  t.is(Namespace.metadata.name, 'meshcache');
  t.deepEqual(DaemonSet.spec.selector.matchLabels, metadata.labels);
  t.deepEqual(Service.spec.selector, metadata.labels);
  t.is(Service.spec.clusterIP, 'None');
  t.deepEqual(container.envFrom, [{ configMapRef: { name: 'meshcache' } }]);
  const volumes = new Set(spec.volumes.map(({ name }) => name));
  for (const { name } of container.volumeMounts) t.true(volumes.has(name), name);

  // The documented command makes exactly the keys that the DaemonSet uses.
  const documented = readFileSync(`${FOLDER}/example/kustomization.yaml`, 'utf8');
  const made = [...documented.matchAll(/--from-literal=([\w-]+)="\$\(openssl rand -hex 32\)"/g)].map(([, key]) => key);
  const secret = spec.volumes.find(({ name }) => name === 'cluster-secret')?.secret;
  const token = container.env.find(({ name }) => name === 'MESHCACHE_METRICS_TOKEN')?.valueFrom.secretKeyRef;
  t.deepEqual([secret?.secretName, token?.name], ['meshcache', 'meshcache']);
  t.deepEqual([...(secret?.items ?? []).map(({ key }) => key), token?.key], made);
  const mounted = container.volumeMounts.find(({ name }) => name === 'cluster-secret')?.mountPath ?? '';
  t.is(settings.MESHCACHE_CLUSTER_SECRET_FILE, join(mounted, secret?.items[0]?.path ?? ''));
  for (const text of [...texts, documented]) t.notRegex(text, /change-?me/i);
});

test('deploy, Kubernetes: every setting is a key with an allowed value, and the pool fits into the memory', (t) => {
  t.true(LOG_LEVELS.includes(settings.MESHCACHE_LOG as string));
  const config = configOf({ ...settings, ...Object.fromEntries(container.env.map(({ name }) => [name, '10.0.0.1'])) });
  assertFits(t, config, container);
  t.true(container.volumeMounts.some(({ mountPath }) => mountPath === config.diskPath));
  // Pods of engines mount the same folder of the machine.
  const sockets = container.volumeMounts.find(({ mountPath }) => mountPath === dirname(config.clientSocket as string));
  const volume = spec.volumes.find(({ name }) => name === sockets?.name);
  t.like(volume, { hostPath: { path: sockets?.mountPath, type: 'DirectoryOrCreate' } });
});

test('deploy, Kubernetes: all ports are fixed, are those of the settings, and no Service can have them', (t) => {
  const byName = Object.fromEntries(container.ports.map(({ name, containerPort }) => [name, containerPort]));
  t.deepEqual(byName, {
    discovery: 18499,
    control: Number(settings.MESHCACHE_CONTROL_PORT),
    data: Number(settings.MESHCACHE_TCP_PORT),
    metrics: Number(settings.MESHCACHE_METRICS_PORT),
  });
  const ports = [byName.discovery as number, ...portsOf(settings)];
  t.is(new Set(ports).size, 5);
  for (const port of ports) t.true(port > 1024 && (port < NODE_PORTS.first || port > NODE_PORTS.last), String(port));

  t.like(container.readinessProbe, { httpGet: { path: '/healthz', port: 'metrics' } });
  t.like(container.livenessProbe, { tcpSocket: { port: 'metrics' } });
  t.deepEqual(metadata.annotations, {
    'prometheus.io/scrape': 'true',
    'prometheus.io/port': settings.MESHCACHE_METRICS_PORT,
    'prometheus.io/path': '/metrics',
  });
  t.deepEqual(
    Service.spec.ports.map(({ port }) => String(port)),
    [settings.MESHCACHE_METRICS_PORT],
  );
});

test('deploy, Kubernetes: machines with GPUs take the pod, and it has time for its drain', (t) => {
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
  t.deepEqual(container.command, ['meshcache']);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-deploy-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'secret'), 'a secret of a test\n');
  const here = {
    MESHCACHE_DISCOVERY_ADDR: `127.0.0.1:${await freePort()}`,
    MESHCACHE_NODE_ID: 'machine-1',
    MESHCACHE_LOCAL_HOSTNAME: '127.0.0.1',
    MESHCACHE_METRICS_HOST: '127.0.0.1',
    MESHCACHE_METRICS_TOKEN: 'token',
    MESHCACHE_CLUSTER_SECRET_FILE: join(folder, 'secret'),
    MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb',
    MESHCACHE_DISK_PATH: join(folder, 'disk'),
    MESHCACHE_DISK_SIZE: '8mb',
    MESHCACHE_CLIENT_SOCKET: join(folder, 'node.sock'),
  };
  // Every variable that this machine cannot have is replaced, and so are the ports.
  for (const { name } of container.env) t.true(name in here, name);
  const ports = Object.keys(settings).filter((name) => name.endsWith('_PORT'));
  const env = { ...settings, ...here, ...more, ...Object.fromEntries(ports.map((name) => [name, '0'])) };
  const child = startCli(container.args, { env });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as Record<string, unknown>;
  t.like(ready, { node_id: 'machine-1', client_socket: here.MESHCACHE_CLIENT_SOCKET });
  t.true((ready.disk_bytes as number) > 0);
  const probe = `http://${ready.metrics_endpoint}${container.readinessProbe.httpGet?.path}`;
  t.is((await fetch(probe)).status, 200);

  // The image has the command on its PATH.
  const program = fileURLToPath(new URL('./cli.js', import.meta.url));
  writeFileSync(join(folder, 'meshcache'), `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`, {
    mode: 0o755,
  });
  const [shell, ...words] = container.lifecycle.preStop.exec.command as [string, ...string[]];
  const inImage = { ...process.env, ...env, PATH: `${folder}:${process.env.PATH}` };
  const drain = (variables: Readonly<Record<string, string>> = {}) =>
    promisify(execFile)(shell, words, { env: { ...inImage, ...variables } });
  return { drain, ended };
}

test('deploy, Kubernetes: its commands work: the probe finds the node, and preStop drains it', async (t) => {
  const { drain, ended } = await startedPod(t);
  t.regex((await drain()).stdout, /machine-1/);
  t.is((await ended).status, 0);
});

test('deploy, Kubernetes: with users, preStop drains the node with the token that the documents name', async (t) => {
  const users = new UsersFile(t, userNamed('drainer'));
  const { drain, ended } = await startedPod(t, { MESHCACHE_USERS_FILE: users.path });
  await t.throwsAsync(drain(), { message: /drain/ });
  const token = `${users.path}.token`;
  writeFileSync(token, tokenOf('drainer'), { mode: 0o600 });
  const variable = /give the container `(\w+)=\/etc\/meshcache\/drain-token`/.exec(
    readFileSync('docs/operations.md', 'utf8'),
  );
  t.regex((await drain({ [variable?.[1] ?? '']: token })).stdout, /machine-1/);
  t.is((await ended).status, 0);
});

const withKubectl = hasKubectl ? test : test.skip;
const skipped = hasKubectl ? '' : ' (skipped: there is no kubectl)';

withKubectl(`deploy, Kubernetes: the overlay adds what RDMA needs, and the example is complete${skipped}`, (t) => {
  const base = kustomized(`${FOLDER}/base`);
  const rdma = kustomized(`${FOLDER}/rdma`);
  const example = kustomized(`${FOLDER}/example`);
  for (const { ConfigMap, DaemonSet: set } of [base, rdma, example]) {
    const [{ envFrom }] = set.spec.template.spec.containers;
    t.is(envFrom[0]?.configMapRef.name, ConfigMap?.metadata.name);
  }
  const [withTcp] = base.DaemonSet.spec.template.spec.containers;
  const [withRdma] = rdma.DaemonSet.spec.template.spec.containers;
  t.is(base.ConfigMap?.data.MESHCACHE_PROTOCOL, 'tcp');
  t.is(rdma.ConfigMap?.data.MESHCACHE_PROTOCOL, 'rdma');
  t.false(Object.keys(withTcp.resources.limits).some((name) => name.startsWith('rdma/')));
  t.is(withRdma.resources.limits['rdma/hca_shared_devices_a'], 1);
  t.deepEqual(withRdma.securityContext.capabilities, { drop: ['ALL'], add: ['IPC_LOCK'] });
  const port = withRdma.ports.find(({ name }) => name === 'rdma')?.containerPort;
  t.is(rdma.ConfigMap?.data.MESHCACHE_RDMA_PORT, String(port));
  t.is(withRdma.ports.length, withTcp.ports.length + 1);

  const [inExample] = example.DaemonSet.spec.template.spec.containers;
  t.regex(inExample.image, /\/meshcache:\d+\.\d+\.\d+$/);
  const { MESHCACHE_DISCOVERY_ADDR } = example.ConfigMap?.data ?? {};
  const discovery = withTcp.ports.find(({ name }) => name === 'discovery')?.containerPort;
  for (const address of MESHCACHE_DISCOVERY_ADDR?.split(',') ?? [''])
    t.true(address.endsWith(`:${discovery}`), address);
  const { name, namespace } = { ...Service.metadata, namespace: Namespace.metadata.name };
  t.is(MESHCACHE_DISCOVERY_ADDR, `dns://${name}.${namespace}.svc.cluster.local:${discovery}`);
  assertFits(t, configOf(example.ConfigMap?.data ?? {}), inExample);
});

withKubectl(
  `deploy, Kubernetes: storage nodes are on machines of their own, with settings of their own${skipped}`,
  (t) => {
    const base = kustomized(`${FOLDER}/base`);
    const { ConfigMap, DaemonSet: set } = kustomized(`${FOLDER}/storage`);
    const [storage] = set.spec.template.spec.containers;
    t.is(storage.envFrom[0]?.configMapRef.name, ConfigMap?.metadata.name);
    t.not(ConfigMap?.metadata.name, base.ConfigMap?.metadata.name);
    const config = configOf(ConfigMap?.data ?? {});
    t.is(config.role, 'storage');
    t.is(configOf(base.ConfigMap?.data ?? {}).role, 'peer');
    assertFits(t, config, storage);
    const labels = set.spec.template.metadata.labels;
    t.deepEqual(set.spec.selector.matchLabels, labels);
    t.is(labels['app.kubernetes.io/name'], metadata.labels['app.kubernetes.io/name'], 'discovery finds both');
    t.notDeepEqual(labels, metadata.labels);
  },
);

test('deploy, container: the file names paths, scripts and a command that exist', (t) => {
  const lines = readFileSync(CONTAINERFILE, 'utf8').replaceAll(/\\\n/g, ' ').split('\n');
  const instructions = lines.filter((line) => /^[A-Z]+ /.test(line)).map((line) => line.split(/ +/));
  const stages = instructions.filter(([name]) => name === 'FROM');
  t.deepEqual(
    stages.map(([, image]) => image),
    ['node:22-bookworm', 'node:22-bookworm-slim'],
  );
  const { scripts, bin, engines, version, name } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.is(engines.node, '>=20.19');
  for (const [, ...words] of instructions.filter(([first, second]) => first === 'COPY' && !second?.startsWith('--')))
    for (const path of words.slice(0, -1)) t.true(existsSync(path), path);
  t.is(scripts.prepack, 'npm run build && npm run build:native');
  const [, tarball] = readFileSync(CONTAINERFILE, 'utf8').match(/COPY --from=build \/tmp\/(\S+) /) ?? [];
  t.regex(`${name}-${version}.tgz`, new RegExp(`^${tarball?.replace('.', '\\.').replace('*', '.*')}$`));
  t.deepEqual(
    instructions.filter(([first]) => first === 'ENTRYPOINT' || first === 'CMD').map(([, argument]) => argument),
    [JSON.stringify(Object.keys(bin)), '["node"]'],
  );
  // What a clone has been built into must not be taken for what the image is built from.
  for (const path of ['.git', 'build', 'node_modules'])
    t.true(readFileSync('.dockerignore', 'utf8').split('\n').includes(path), path);
});
