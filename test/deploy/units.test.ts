import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { parseAllDocuments } from 'yaml';
import { LOG_LEVELS } from '../../src/base/environment/log.js';
import { parseSize } from '../../src/base/sizes.js';
import { CONFIG_KEYS, MeshCacheConfig } from '../../src/config.js';
import { collect, firstLine, startCli } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';

const UNIT = 'deploy/meshcache.service';
const MANIFEST = 'deploy/kubernetes-daemonset.yaml';
/** The longest that a node takes to end, by its own help. */
const END_MAX_SECONDS = 5;

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly tcpSocket?: { readonly port: string };
}

interface Container {
  readonly command: string[];
  readonly args: string[];
  readonly envFrom: { readonly configMapRef: { readonly name: string } }[];
  readonly env: { readonly name: string; readonly valueFrom: Record<string, Record<string, string>> }[];
  readonly ports: { readonly name: string; readonly containerPort: number }[];
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly resources: { readonly requests: Record<string, string>; readonly limits: Record<string, string | number> };
  readonly securityContext: { readonly capabilities: { readonly add: string[]; readonly drop: string[] } };
  readonly volumeMounts: { readonly name: string; readonly mountPath: string }[];
}

interface PodTemplate {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: {
    readonly hostNetwork: boolean;
    readonly enableServiceLinks: boolean;
    readonly terminationGracePeriodSeconds: number;
    readonly containers: Container[];
    readonly volumes: { readonly name: string; readonly hostPath?: { readonly path: string; readonly type: string } }[];
  };
}

interface Manifests {
  readonly Namespace: { readonly metadata: { readonly name: string } };
  readonly ConfigMap: { readonly metadata: { readonly name: string }; readonly data: Record<string, string> };
  readonly Secret: { readonly metadata: { readonly name: string }; readonly stringData: Record<string, string> };
  readonly Service: {
    readonly spec: { clusterIP: string; selector: Record<string, string>; ports: { readonly port: number }[] };
  };
  readonly DaemonSet: {
    readonly spec: {
      readonly selector: { readonly matchLabels: Record<string, string> };
      readonly template: PodTemplate;
    };
  };
}

const run = hasSystemd ? test : test.skip;

run('deploy, systemd: the unit is one that systemd takes without a word', (t) => {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', UNIT], { encoding: 'utf8' });
  t.is(status, 0);
  t.is(stdout + stderr, '');
});

run('deploy, systemd: the service can reach little of the machine', (t) => {
  const args = ['security', '--offline=true', '--threshold=25', '--no-pager', UNIT];
  const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
  t.is(
    status,
    0,
    stdout
      .split('\n')
      .filter((line) => line.startsWith('✗') || line.startsWith('→'))
      .join('\n'),
  );
});

test('deploy, systemd: RDMA may lock its memory and use its devices, and the node has its time to end', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('LimitMEMLOCK'), ['infinity']);
  t.true(Number(unit.get('LimitNOFILE')?.[0]) >= 4096);
  t.true(unit.get('DeviceAllow')?.some((device) => device.startsWith('char-infiniband_verbs')));
  t.true(unit.get('RestrictAddressFamilies')?.[0]?.includes('AF_NETLINK'));
  t.false(unit.has('MemoryDenyWriteExecute'));
  t.true(Number(unit.get('TimeoutStopSec')?.[0]) > END_MAX_SECONDS);
  t.is(unit.get('KillSignal')?.[0], 'SIGTERM');
});

test('deploy, systemd: a node has one name, a log, and is not started for ever', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('Environment'), [
    'MESHCACHE_NODE_ID=%H',
    'MESHCACHE_LOG=info',
    'MESHCACHE_CLIENT_SOCKET=/run/meshcache/node.sock',
  ]);
  t.is(unit.get('StartLimitIntervalSec')?.[0], '10min');
  // All starts have to fall into the interval, else the limit is never reached.
  const eachS = Number(unit.get('RestartSec')?.[0]) + END_MAX_SECONDS;
  t.true(Number(unit.get('StartLimitBurst')?.[0]) * eachS < 600);
});

test('deploy, systemd: other processes reach the client socket, in a folder that systemd makes and takes away', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('RuntimeDirectory'), ['meshcache']);
  t.deepEqual(unit.get('RuntimeDirectoryMode'), ['0755']);
  t.false(unit.has('RuntimeDirectoryPreserve'), 'for a dynamic user the folder would be a private one');
  const socket = unit.get('Environment')?.find((setting) => setting.startsWith('MESHCACHE_CLIENT_SOCKET='));
  t.regex(socket ?? '', /=\/run\/meshcache\/[^/]+$/);
  t.true(unit.get('RestrictAddressFamilies')?.[0]?.includes('AF_UNIX'));
});

test('deploy, systemd: its command is one that the program takes', async (t) => {
  const [command] = settingsOf(readFileSync(UNIT, 'utf8')).get('ExecStart') ?? [];
  const [env, program, ...args] = (command as string).split(' ');
  t.deepEqual([env, program], ['/usr/bin/env', 'meshcache']);
  await runAndEnd(t, args, { MESHCACHE_METRICS_PORT: '0' });
});

test('deploy, Kubernetes: every document parses, and names what the others have', (t) => {
  const { Namespace, ConfigMap, Secret, Service, DaemonSet } = manifests(t);
  const { template, selector } = DaemonSet.spec;
  const [container] = template.spec.containers as [Container];
  t.is(Namespace.metadata.name, 'meshcache');
  t.deepEqual(selector.matchLabels, template.metadata.labels);
  t.deepEqual(Service.spec.selector, template.metadata.labels);
  t.is(Service.spec.clusterIP, 'None');
  t.deepEqual(container.envFrom, [{ configMapRef: { name: ConfigMap.metadata.name } }]);
  for (const variable of ['MESHCACHE_CLUSTER_SECRET', 'MESHCACHE_METRICS_TOKEN']) {
    const secret = container.env.find(({ name }) => name === variable)?.valueFrom.secretKeyRef;
    t.is(secret?.name, Secret.metadata.name, variable);
    t.true((secret?.key ?? '') in Secret.stringData, variable);
  }
  const volumes = new Set(template.spec.volumes.map(({ name }) => name));
  for (const { name } of container.volumeMounts) t.true(volumes.has(name), name);
});

test('deploy, Kubernetes: what RDMA needs, and time to end', (t) => {
  const { spec } = manifests(t).DaemonSet.spec.template;
  const [container] = spec.containers as [Container];
  t.true(spec.hostNetwork);
  t.deepEqual(container.securityContext.capabilities, { drop: ['ALL'], add: ['IPC_LOCK'] });
  t.true(Object.keys(container.resources.limits).some((name) => name.startsWith('rdma/')));
  t.true(spec.terminationGracePeriodSeconds > END_MAX_SECONDS);
  // Else a service named meshcache-metrics would set MESHCACHE_METRICS_PORT.
  t.false(spec.enableServiceLinks);
  const text = readFileSync(MANIFEST, 'utf8');
  for (const word of ['hugepages-2Mi', '/dev/infiniband']) t.true(text.includes(word), word);
});

test('deploy, Kubernetes: probes, annotations and the scraped port are those of the metrics server', (t) => {
  const { ConfigMap, Service, DaemonSet } = manifests(t);
  const { metadata, spec } = DaemonSet.spec.template;
  const [container] = spec.containers as [Container];
  const port = Number(ConfigMap.data.MESHCACHE_METRICS_PORT);
  t.deepEqual(container.ports, [{ name: 'metrics', containerPort: port }]);
  t.like(container.readinessProbe, { httpGet: { path: '/healthz', port: 'metrics' } });
  t.like(container.livenessProbe, { tcpSocket: { port: 'metrics' } });
  t.deepEqual(metadata.annotations, {
    'prometheus.io/scrape': 'true',
    'prometheus.io/port': String(port),
    'prometheus.io/path': '/metrics',
  });
  t.deepEqual(
    Service.spec.ports.map((each) => each.port),
    [port],
  );
});

test('deploy, Kubernetes: every variable is a configuration key, every value is allowed, and the pool fits into the memory', (t) => {
  const { ConfigMap, DaemonSet } = manifests(t);
  const [container] = DaemonSet.spec.template.spec.containers as [Container];
  const values = { ...ConfigMap.data, ...Object.fromEntries(container.env.map(({ name }) => [name, '10.0.0.1'])) };
  t.true(LOG_LEVELS.includes(values.MESHCACHE_LOG as string));
  delete (values as Record<string, string>).MESHCACHE_LOG;
  const keys = Object.keys(values).map((name) => name.replace(/^MESHCACHE_/, '').toLowerCase());
  for (const key of keys) t.true(CONFIG_KEYS.includes(key), key);
  const config = MeshCacheConfig.fromExtraConfig(
    Object.fromEntries(keys.map((key, i) => [key, Object.values(values)[i]])),
  );
  const memoryBytes = parseSize((container.resources.requests.memory as string).replace('Gi', 'gb')) as number;
  t.true(config.globalSegmentSize + 2 ** 30 <= memoryBytes);
  t.true(container.volumeMounts.some(({ mountPath }) => mountPath === config.diskPath));
  // Other pods have the same folder.
  const sockets = container.volumeMounts.find(({ mountPath }) => mountPath === dirname(config.clientSocket as string));
  const volume = DaemonSet.spec.template.spec.volumes.find(({ name }) => name === sockets?.name);
  t.like(volume, { hostPath: { path: sockets?.mountPath, type: 'DirectoryOrCreate' } });
});

test('deploy, Kubernetes: its command is one that the program takes, and the probe finds it', async (t) => {
  const { ConfigMap, DaemonSet } = manifests(t);
  const [container] = DaemonSet.spec.template.spec.containers as [Container];
  t.deepEqual(container.command, ['meshcache']);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-deploy-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [disk, client_socket] = [join(folder, 'disk'), join(folder, 'node.sock')];
  // What stands for a value that only the cluster knows, and what this machine has not.
  const here = { MESHCACHE_NODE_ID: 'machine-1', MESHCACHE_METRICS_TOKEN: 'token', MESHCACHE_DISK_PATH: disk };
  const env = {
    ...ConfigMap.data,
    ...Object.fromEntries(container.env.map(({ name }) => [name, '127.0.0.1'])),
    ...{ ...here, MESHCACHE_DISK_SIZE: '8mb', MESHCACHE_METRICS_PORT: '0', MESHCACHE_CLIENT_SOCKET: client_socket },
  };
  const line = await runAndEnd(t, container.args, env, probe);
  const ready = JSON.parse(line) as { node_id: string; disk_bytes: number; client_socket: string };
  t.is(ready.node_id, 'machine-1');
  t.is(ready.client_socket, client_socket);
  t.true(ready.disk_bytes > 0);

  async function probe(line: string): Promise<void> {
    const { metrics_endpoint } = JSON.parse(line) as { metrics_endpoint: string };
    t.is((await fetch(`http://${metrics_endpoint}${container.readinessProbe.httpGet?.path}`)).status, 200);
  }
});

/** Runs `meshcache` until it is ready, alone on this machine, and ends it; resolves with its line. */
async function runAndEnd(
  t: ExecutionContext,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  whenReady: (line: string) => Promise<void> = async () => {},
): Promise<string> {
  const small = { MESHCACHE_DISCOVERY_ADDR: `127.0.0.1:${await freePort()}`, MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb' };
  const child = startCli(args, { env: { ...env, ...small } });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const line = await firstLine(child);
  await whenReady(line);
  child.kill('SIGTERM');
  t.is((await ended).status, 0);
  return line;
}

function manifests(t: ExecutionContext): Manifests {
  const documents = parseAllDocuments(readFileSync(MANIFEST, 'utf8'));
  if (!Array.isArray(documents)) throw new Error('there is no document');
  for (const { errors, warnings } of documents) t.deepEqual([...errors, ...warnings], []);
  const contents = documents.map((document) => document.toJS() as { kind: string });
  return Object.fromEntries(contents.map((content) => [content.kind, content])) as unknown as Manifests;
}

/** Values by name; systemd lets several of one name add up. */
function settingsOf(unit: string): Map<string, string[]> {
  const settings = new Map<string, string[]>();
  for (const line of unit.split('\n')) {
    const [, name, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (name !== undefined) settings.set(name, [...(settings.get(name) ?? []), value as string]);
  }
  return settings;
}
