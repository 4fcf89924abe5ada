import { readFileSync } from 'node:fs';
import test from 'ava';
import { parse } from 'yaml';
import { parseSize } from '../../src/base/sizes.js';
import { CONFIG_KEYS, SECRET_KEYS } from '../../src/config.js';
import { ALERTS, DASHBOARD } from '../_support/deploy/files.js';
import {
  CHART,
  type ConfigMap,
  type Container,
  configOf,
  helmTemplate,
  type Manifest,
  nodeOf,
  noHelm,
  noValidator,
  only,
  rendered,
  settingsOf,
  tool,
  type Values,
  type Workload,
  workloadsOf,
} from '../_support/deploy/manifests.js';
import { EVERYTHING, shownValues } from '../_support/deploy/values.js';
import { unless } from '../_support/unless.js';

/** Versions of Kubernetes that the manifests are checked against: the oldest one that the chart takes, and a new one. */
const VERSIONS = ['1.29.0', '1.37.0'];
const MIB = 2 ** 20;

interface Schema {
  readonly properties: Record<string, Schema>;
  readonly $ref?: string;
  readonly $defs: Record<'chartKey' | 'configKey' | 'secretKey', { readonly enum: readonly string[] }>;
}

const schema = JSON.parse(readFileSync(`${CHART}/values.schema.json`, 'utf8')) as Schema;
const { chartKey, configKey, secretKey } = schema.$defs;

const shown = shownValues();
const withHelm = unless(noHelm);

test('deploy, chart: the schema knows every setting of the program, each once, and which ones are secret', (t) => {
  const known = [...chartKey.enum, ...configKey.enum, ...secretKey.enum];
  t.deepEqual([...known].sort(), [...CONFIG_KEYS].sort());
  const bySecret = ['cluster_secret', 'metrics_token'];
  t.deepEqual([...secretKey.enum, ...bySecret].sort(), [...SECRET_KEYS].sort());
  for (const key of bySecret) t.true(chartKey.enum.includes(key), key);
});

test('deploy, chart: its version is that of the package', (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.like(parse(readFileSync(`${CHART}/Chart.yaml`, 'utf8')), { name: 'meshcache', version, appVersion: version });
});

test('deploy, chart: every value that the schema allows is in values.yaml, with its default', (t) => {
  const missing = (value: unknown, { properties, $ref }: Schema, path: string): string[] => {
    const name = $ref?.replace('#/$defs/', '') as 'configKey';
    const inner = properties ?? (schema.$defs[name] as unknown as Schema | undefined)?.properties ?? {};
    return Object.entries(inner).flatMap(([key, each]) => {
      const given = (value as Record<string, unknown> | undefined)?.[key];
      return given === undefined ? [`${path}${key}`] : missing(given, each, `${path}${key}.`);
    });
  };
  t.deepEqual(missing(parse(readFileSync(`${CHART}/values.yaml`, 'utf8')), schema, ''), ['global']);
});

withHelm(
  'deploy, chart: helm lint finds nothing, with its own values, with all, and with those of the document',
  (t) => {
    t.true(shown.length >= 7);
    for (const values of ['', JSON.stringify(EVERYTHING), ...shown]) {
      const { status, stdout, stderr } = tool('helm', ['lint', '--strict', '--quiet', CHART, '--values', '-'], values);
      t.is(status, 0, `${values}\n${stdout}${stderr}`);
    }
  },
);

unless(noValidator)('deploy, chart: every manifest is valid by the strict schemas of Kubernetes', (t) => {
  // The schemas have no resources of Prometheus Operator.
  const known = (text: string): string => {
    const others = text.split(/^---$/m).filter((document) => !document.includes('monitoring.coreos.com'));
    return others.join('---\n');
  };
  const texts = ['', JSON.stringify(EVERYTHING), ...shown].map((values) => known(helmTemplate(values).stdout));
  const text = texts.join('---\n');
  for (const version of VERSIONS) {
    const { status, stdout, stderr } = tool('kubernetes-validate', ['--strict', '-k', version, '-'], text);
    t.is(status, 0, stdout + stderr);
    const passed = (stdout + stderr).match(/ passed for resource /g);
    t.is(passed?.length, text.match(/^kind: /gm)?.length);
  }
  const wrong = texts[0]?.replace('clusterIP: None', 'clusterIp: None');
  t.not(tool('kubernetes-validate', ['--strict', '-'], wrong).status, 0);
});

withHelm('deploy, chart: the settings that it makes are those that `config` refuses', (t) => {
  const manifests = rendered(EVERYTHING);
  const daemonSet = only<Workload>(manifests, 'DaemonSet');
  const others = [...Object.keys(EVERYTHING.config), ...Object.keys(EVERYTHING.secretConfig)];
  const variables = [
    ...Object.keys(settingsOf(manifests, daemonSet)),
    ...nodeOf(daemonSet).env.map(({ name }) => name),
  ];
  const keys = variables.map((name) => name.replace('MESHCACHE_', '').toLowerCase());
  const program = ['log', 'token_file'];
  // The zone is in a file here, and the secret is in another one.
  const made = [...keys.filter((key) => ![...others, ...program].includes(key)), 'zone', 'cluster_secret'];
  t.deepEqual(made.sort(), [...chartKey.enum].sort());
});

const SGLANG = { name: 'a', kind: 'sglang', image: 'i', model: 'm', pool: { size: '1gb' } };

withHelm('deploy, chart: releases with the longest names have objects of their own, whose pods can be made', (t) => {
  const engines = [{ ...SGLANG, name: 'e'.repeat(20) }];
  const [one, other] = ['1', '2'].map((end) => {
    const manifests = rendered({ storage: { enabled: true }, engines }, `${'long-'.repeat(10)}na${end}`);
    return manifests.map(({ kind, metadata }) => [kind, metadata.name] as const);
  });
  const sets = one?.filter(([kind]) => kind === 'StatefulSet');
  t.is(sets?.length, 2);
  // The label controller-revision-hash is the name, a hyphen and ten characters at most; 63 are allowed.
  for (const [, name] of sets ?? []) t.true(name.length <= 52, name);
  const names = new Set(one?.map(([, name]) => name));
  t.deepEqual(
    other?.filter(([, name]) => names.has(name)),
    [],
  );
});

withHelm('deploy, chart: releases of one name in two namespaces share no object', (t) => {
  const values = { priorityClass: { create: true }, zone: { from: 'machine' } };
  const [one = [], other = []] = ['a', 'b'].map((namespace) =>
    rendered(values, 'mesh', namespace).map(
      ({ kind, metadata }) => `${kind} ${metadata.namespace ?? ''} ${metadata.name}`,
    ),
  );
  t.true(one.some((each) => each.startsWith('PriorityClass ')));
  t.deepEqual(
    other.filter((each) => one.includes(each)),
    [],
  );
});

for (const release of ['1mesh', 'mesh.cache']) {
  withHelm(`deploy, chart: it refuses a release with the name ${release}, which its Service cannot have`, (t) => {
    const { status, stderr } = helmTemplate({}, release);
    t.not(status, 0);
    t.regex(stderr, /begin with a letter, and use no dots/);
  });
}

const ENGINE_STORAGE = { storage: { enabled: true }, engines: [{ ...SGLANG, name: 'storage' }] };

for (const [title, values, expected] of [
  ['a value that there is not', { inferense: {} }, /inferense/],
  ['a setting that there is not', { config: { vnodess: 3 } }, /vnodess/],
  ['a setting that another value stands for', { config: { global_segment_size: '4gb' } }, /global_segment_size/],
  ['a secret among the settings', { inference: { config: { cluster_secret: 'x' } } }, /cluster_secret/],
  ['a secret as a text', { secretConfig: { etcd_password: 'x' } }, /etcd_password/],
  ['a size that no memory can be computed from', { inference: { pool: { size: '1.5gb' } } }, /size/],
  ['huge pages without a folder', { inference: { pool: { keep: 'process', hugepages: true } } }, /hugepages/],
  ['a port of Services', { ports: { control: 31_990 } }, /control/],
  ['a label that no pod gets', { zone: { from: 'pod', label: 'rack' } }, /zone/],
  ['a value that is taken away', { inference: null }, /inference/],
  ['a part of the nodes that is taken away', { inference: { disk: null } }, /disk/],
  ['processors that are no amount', { storage: { cpu: 'many' } }, /cpu/],
  ['two ports that are one', { ports: { tcp: 18_500 } }, /ports: each must be another one/],
  ['two engines of one name', { engines: [SGLANG, SGLANG] }, /engines: each name must be another one.*a, a/],
  ['an engine with the name of the storage nodes', ENGINE_STORAGE, /engines: each name .*storage, storage/],
  ['an engine without a pool', { engines: [{ name: 'a', kind: 'sglang', image: 'i', model: 'm' }] }, /pool/],
] as const satisfies [string, Values, RegExp][]) {
  withHelm(`deploy, chart: it refuses ${title}`, (t) => {
    const { status, stderr } = helmTemplate(values);
    t.not(status, 0);
    t.regex(stderr, expected);
  });
}

withHelm('deploy, chart: whole numbers stay whole, and the settings of a kind of nodes win', (t) => {
  const config = {
    client_regions_max: 4_398_046_511_104,
    pin_max_share: 0.125,
    verify_reads: true,
    vnodes: 10_000_000,
  };
  const manifests = rendered({ config, inference: { config: { verify_reads: false } }, storage: { enabled: true } });
  const [daemonSet, storage] = workloadsOf(manifests) as [Workload, Workload];
  const settings = { MESHCACHE_CLIENT_REGIONS_MAX: '4398046511104', MESHCACHE_PIN_MAX_SHARE: '0.125' };
  t.like(settingsOf(manifests, daemonSet), {
    ...settings,
    MESHCACHE_VNODES: '10000000',
    MESHCACHE_VERIFY_READS: 'false',
  });
  t.like(settingsOf(manifests, storage), { ...settings, MESHCACHE_VERIFY_READS: 'true' });
});

/** Bytes of an amount of memory of a manifest. */
function bytesOf(amount: string | number | undefined): number {
  return parseSize(String(amount ?? 0).replace('Mi', 'mb')) as number;
}

function memoryOf({ resources }: Container): { readonly bytes: number; readonly hugeBytes: number } {
  const { requests, limits } = resources;
  if (requests.memory !== limits.memory) throw new Error('a node may be ended before it has what it asks for');
  return { bytes: bytesOf(limits.memory), hugeBytes: bytesOf(limits['hugepages-2Mi']) };
}

withHelm('deploy, chart: the limits of memory follow from the pool and where it is kept', (t) => {
  const beyond = 2 ** 31;
  for (const size of ['1mb', '1000mb', '7gb', '33gb', '2tb'])
    for (const [keep, hugepages] of [
      ['process', false],
      ['machine', false],
      ['machine', true],
    ] as const) {
      const manifests = rendered({ inference: { pool: { size, keep, hugepages } } });
      const daemonSet = only<Workload>(manifests, 'DaemonSet');
      const config = configOf(settingsOf(manifests, daemonSet));
      const { bytes, hugeBytes } = memoryOf(nodeOf(daemonSet));
      const pool = config.globalSegmentSize;
      const kept = keep === 'process' ? pool : Math.ceil(pool * (33 / 32));
      const inPages = hugepages ? hugeBytes : bytes - beyond;
      t.true(inPages >= kept && inPages <= kept + 5 * MIB, `${size} ${keep}: ${inPages} for ${kept}`);
      t.is(hugepages ? bytes : hugeBytes, hugepages ? beyond : 0);
      t.is(hugeBytes % (2 * MIB), 0);
      t.is(config.poolPath === undefined, keep === 'process');
    }
});

withHelm('deploy, chart: a pool on the machine outlives the pod, and one of a pod its container', (t) => {
  const manifests = rendered(EVERYTHING);
  const volumes = workloadsOf(manifests).map(({ metadata, spec }) => {
    const { hostPath, emptyDir } = spec.template.spec.volumes.find(({ name }) => name === 'pool') ?? {};
    return [metadata.name, hostPath?.path ?? emptyDir];
  });
  t.deepEqual(Object.fromEntries(volumes), {
    meshcache: '/dev/shm/meshcache',
    'meshcache-one': { medium: 'HugePages-2Mi' },
    'meshcache-storage': '/dev/shm/meshcache-storage',
    'meshcache-two': { medium: 'Memory', sizeLimit: '8450Mi' },
  });
});

withHelm(
  'deploy, chart: every kind of nodes has labels of its own, and the Service and the PodMonitor find all',
  (t) => {
    const manifests = rendered(EVERYTHING);
    const workloads = workloadsOf(manifests);
    t.is(workloads.length, 4);
    const { selector } = only<Manifest & { readonly spec: { readonly selector: object } }>(manifests, 'Service').spec;
    t.like(only(manifests, 'PodMonitor'), { spec: { selector: { matchLabels: selector } } });
    t.like(only(manifests, 'NetworkPolicy'), { spec: { podSelector: { matchLabels: selector } } });
    for (const { spec } of workloads) {
      t.deepEqual(spec.selector.matchLabels, spec.template.metadata.labels);
      t.like(spec.template.metadata.labels, selector);
    }
    t.is(new Set(workloads.map(({ spec }) => JSON.stringify(spec.selector))).size, 4);
    // Storage nodes and the others know what they are.
    const roles = workloads.map((each) => [each.metadata.name, configOf(settingsOf(manifests, each)).role]);
    t.like(Object.fromEntries(roles), { meshcache: 'peer', 'meshcache-storage': 'storage', 'meshcache-one': 'peer' });
  },
);

withHelm(
  'deploy, chart: every volume that a container mounts is in its pod, and every Secret is another one’s',
  (t) => {
    const manifests = rendered(EVERYTHING);
    for (const { metadata, spec } of workloadsOf(manifests)) {
      const { initContainers = [], containers, volumes } = spec.template.spec;
      const claims = spec.volumeClaimTemplates ?? [];
      const names = new Set([...volumes.map(({ name }) => name), ...claims.map((claim) => claim.metadata.name)]);
      for (const container of [...initContainers, ...containers])
        for (const { name } of container.volumeMounts) t.true(names.has(name), `${metadata.name}: ${name}`);
    }
    t.false(manifests.some(({ kind }) => kind === 'Secret'));
    const node = nodeOf(only<Workload>(manifests, 'DaemonSet'));
    const password = node.env.find(({ name }) => name === 'MESHCACHE_RESP_PASSWORD')?.valueFrom.secretKeyRef;
    t.deepEqual(password, { name: 'redis', key: 'password' });
    t.true(node.volumeMounts.some(({ mountPath }) => mountPath === '/etc/meshcache-secrets/tls'));
  },
);

withHelm('deploy, chart: the volume of a storage node is larger than its disk tier', (t) => {
  const manifests = rendered(EVERYTHING);
  const storage = only<Workload>(manifests, 'StatefulSet', 'meshcache-storage');
  const { diskSize, diskPath } = configOf(settingsOf(manifests, storage));
  const claim = storage.spec.volumeClaimTemplates?.[0];
  const mount = nodeOf(storage).volumeMounts.find(({ name }) => name === claim?.metadata.name);
  t.true(bytesOf(claim?.spec.resources.requests.storage) > 1.04 * diskSize);
  t.is(mount?.mountPath, diskPath);
  // A new file system has a folder lost+found, which a node takes for a file of others.
  t.truthy(mount?.subPath);
});

withHelm('deploy, chart: monitoring has the alerts, the dashboard and the token, and one job', (t) => {
  const manifests = rendered(EVERYTHING);
  t.deepEqual(only<Manifest>(manifests, 'PrometheusRule').spec, parse(readFileSync(`deploy/${ALERTS}`, 'utf8')));
  const { data } = only<ConfigMap>(manifests, 'ConfigMap', 'meshcache-dashboard');
  t.deepEqual(JSON.parse(data['meshcache.json'] ?? ''), JSON.parse(readFileSync(`deploy/${DASHBOARD}`, 'utf8')));
  const node = nodeOf(only<Workload>(manifests, 'DaemonSet'));
  const token = node.env.find(({ name }) => name === 'MESHCACHE_METRICS_TOKEN')?.valueFrom.secretKeyRef;
  const { metadata, spec } = only<Manifest>(manifests, 'PodMonitor');
  t.is(metadata.labels.release, 'prometheus');
  const [endpoint] = (spec as { readonly podMetricsEndpoints: readonly [Record<string, unknown>] }).podMetricsEndpoints;
  t.like(endpoint, { port: 'metrics', path: '/metrics', scheme: 'https' });
  t.deepEqual(endpoint.authorization, { type: 'Bearer', credentials: token });
  // The alert for nodes that are down chooses its jobs by this word.
  const [, job = ''] = /up\{job=~"(.*)"\}/.exec(readFileSync(`deploy/${ALERTS}`, 'utf8')) ?? [];
  const [{ targetLabel, replacement }] = endpoint.relabelings as [Record<string, string>];
  t.is(targetLabel, 'job');
  t.regex(replacement ?? '', new RegExp(`^${job}$`));
  t.true(node.ports.some(({ name }) => name === endpoint.port));
});

withHelm(
  'deploy, chart: after an installation Helm says which Secret is missing, and what a NetworkPolicy cannot do',
  (t) => {
    const notes = (values: Values): string => {
      const args = ['install', 'meshcache', CHART, '--namespace', 'meshcache', '--dry-run=client', '--values', '-'];
      return tool('helm', args, JSON.stringify(values)).stdout.split('NOTES:\n')[1] ?? '';
    };
    const text = notes({ secret: { name: 'own' } });
    t.regex(text, /kubectl -n meshcache create secret generic own \\\n +--from-literal=cluster-secret=/);
    t.notRegex(text, /WARNING/);
    const networkPolicy = { enabled: true };
    t.regex(notes({ networkPolicy }), /WARNING: most network plugins ignore/);
    t.notRegex(notes({ networkPolicy, hostNetwork: false }), /WARNING/);
  },
);

withHelm('deploy, chart: RDMA asks for a device, locks memory, and is off by default', (t) => {
  for (const enabled of [false, true]) {
    const manifests = rendered({ rdma: { enabled } });
    const daemonSet = only<Workload>(manifests, 'DaemonSet');
    const { resources, securityContext, ports } = nodeOf(daemonSet);
    const { protocol, rdmaPort } = configOf(settingsOf(manifests, daemonSet));
    t.is(protocol, enabled ? 'rdma' : 'tcp');
    t.is(resources.limits['rdma/hca_shared_devices_a'], enabled ? 1 : undefined);
    t.deepEqual(securityContext.capabilities, enabled ? { drop: ['ALL'], add: ['IPC_LOCK'] } : { drop: ['ALL'] });
    t.is(ports.find(({ name }) => name === 'rdma')?.containerPort, enabled ? rdmaPort : undefined);
  }
});
