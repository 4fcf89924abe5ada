import { execFile, execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { Authority, noCertificates } from '../_support/certificates.js';
import { type Container, nodeOf, noHelm, only, rendered, type Workload } from '../_support/deploy/manifests.js';
import { fencesOf } from '../_support/docs/markdown.js';
import { listenAlone } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const run = promisify(execFile);
const withHelm = unless(noHelm);
const GUIDE = 'docs/guides/llm-server.md';

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-pod-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The pod that the document shows for an engine. */
function podOf(kind: string): Workload {
  const [values] = fencesOf(readFileSync('docs/kubernetes.md', 'utf8')).filter(({ text }) =>
    text.includes(`kind: ${kind}`),
  );
  return only<Workload>(rendered(values?.text), 'StatefulSet');
}

function named(workload: Workload, name: string): Container {
  const { initContainers = [], containers } = workload.spec.template.spec;
  return [...initContainers, ...containers].find((each) => each.name === name) as Container;
}

/** Arguments by their names, as `--name=value`, `--name value` or `--name`; JSON is parsed. Words without a name count, too. */
function argumentsOf(words: readonly string[]): Map<string, unknown> {
  const joined: string[] = [];
  for (const word of words) {
    const last = joined.at(-1);
    if (!word.startsWith('-') && last?.startsWith('--') && !last.includes('='))
      joined[joined.length - 1] = `${last}=${word}`;
    else joined.push(word);
  }
  return new Map(
    joined.map((word) => {
      const [, name = word, value = ''] = /^(--[^=]+)=(.*)$/s.exec(word) ?? [];
      return [name, value.startsWith('{') ? JSON.parse(value) : value];
    }),
  );
}

/** The arguments of the command that the guide shows for an engine. */
function inGuide(program: string, word: string): Map<string, unknown> {
  const block = fencesOf(readFileSync(GUIDE, 'utf8')).find(({ text }) => text.includes(`${program} ${word}`));
  const script = `${program}() { printf '%s\\0' "$@"; }\n${block?.text}`;
  return argumentsOf(execFileSync('sh', ['-c', script], { encoding: 'utf8' }).split('\0').slice(0, -1));
}

const SOCKET = '/run/meshcache/node.sock';

for (const { kind, program, word, config, more, socketIn } of [
  {
    kind: 'sglang',
    program: 'python',
    word: '-m sglang.launch_server',
    config: '--hicache-storage-backend-extra-config',
    more: ['--host', '--port', '--tp-size'],
    socketIn: (extra: Record<string, unknown>) => extra,
  },
  {
    kind: 'vllm',
    program: 'vllm',
    word: 'serve',
    config: '--kv-transfer-config',
    more: ['--host', '--port', '--tensor-parallel-size'],
    socketIn: (extra: Record<string, unknown>) => {
      const { secondary_tiers } = extra.kv_connector_extra_config as { secondary_tiers: [Record<string, unknown>] };
      return secondary_tiers[0];
    },
  },
]) {
  withHelm(`deploy, engines: the pod starts ${kind} as the guide does, at the socket of its own node`, (t) => {
    const pod = podOf(kind);
    const engine = named(pod, 'engine');
    const [, ...words] = engine.args;
    const given = argumentsOf(words);
    for (const name of more) t.true(given.delete(name), name);
    const extra = given.get(config) as Record<string, unknown>;
    t.is(socketIn(extra).client_socket, SOCKET);
    delete socketIn(extra).client_socket;
    const guide = inGuide(program, word);
    t.true(guide.size >= 3);
    t.deepEqual([...given].sort(), [...guide].sort());

    const mounts = [engine, nodeOf(pod)].map(({ volumeMounts }) =>
      volumeMounts.find(({ mountPath }) => mountPath === '/run/meshcache'),
    );
    t.deepEqual(mounts[0], mounts[1]);
    t.like(pod.spec.template.spec, { shareProcessNamespace: true });
    t.deepEqual(
      [nodeOf(pod).restartPolicy, nodeOf(pod).env[0]?.valueFrom.fieldRef?.fieldPath],
      ['Always', 'metadata.name'],
    );
  });
}

withHelm('deploy, engines: the Python client of the image is what the engine’s container installs', async (t) => {
  const pod = podOf('sglang');
  const folder = folderOf(t);
  cpSync('build/python', join(folder, 'in-image'), { recursive: true });
  writeFileSync(join(folder, 'meshcache'), `#!/bin/sh\n[ "$1" = python-path ] && echo '${folder}/in-image'\n`, {
    mode: 0o755,
  });
  writeFileSync(join(folder, 'pip'), `#!/bin/sh\nshift "$(($# - 1))"\nls "$1" > '${folder}/installed'\n`, {
    mode: 0o755,
  });
  const env = { PATH: `${folder}:${process.env.PATH}` };
  const at = (text: string | undefined): string => (text ?? '').replaceAll('/opt/', `${folder}/`);
  execFileSync('mkdir', [join(folder, 'meshcache-python')]);
  const [shell, , copy] = named(pod, 'python-client').command;
  await run(shell as string, ['-c', at(copy)], { env });
  const [, , install, name] = named(pod, 'engine').command;
  const { stdout } = await run(shell as string, ['-c', at(install), name as string, 'echo', 'a  b', '{"c": 1}'], {
    env,
  });
  t.is(stdout, 'a  b {"c": 1}\n');
  t.regex(readFileSync(join(folder, 'installed'), 'utf8'), /^pyproject\.toml$/m);
});

/** An API server that knows one machine, and the environment in which the init container reads its label. */
async function apiServer(t: ExecutionContext, labels: Record<string, string>) {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const { tlsCertFile, tlsKeyFile, tlsCaFile } = authority.issue('api', 30, '127.0.0.1');
  const server = createServer(
    { cert: readFileSync(tlsCertFile), key: readFileSync(tlsKeyFile) },
    (request, response) => {
      const known = request.url === '/api/v1/nodes/machine-1' && request.headers.authorization === 'Bearer a.token';
      response
        .writeHead(known ? 200 : 403)
        .end(JSON.stringify(known ? { metadata: { labels } } : { reason: 'Forbidden' }));
    },
  );
  const port = await listenAlone(server);
  t.teardown(() => server.close());
  const folder = folderOf(t);
  writeFileSync(join(folder, 'token'), 'a.token\n');
  const config = join(folder, 'node.json');
  const env = {
    NODE_NAME: 'machine-1',
    TOKEN_FILE: join(folder, 'token'),
    CONFIG_FILE: config,
    NODE_EXTRA_CA_CERTS: tlsCaFile,
    KUBERNETES_SERVICE_HOST: '127.0.0.1',
    KUBERNETES_SERVICE_PORT: String(port),
  };
  return { env, config };
}

unless(noHelm || noCertificates)(
  'deploy, zones: the init container makes the label of the machine the zone',
  async (t) => {
    const daemonSet = only<Workload>(rendered({ zone: { from: 'machine', label: 'example.com/rack' } }), 'DaemonSet');
    const zone = named(daemonSet, 'zone');
    const ZONE_LABEL = zone.env.find(({ name }) => name === 'ZONE_LABEL')?.value ?? '';
    const { env, config } = await apiServer(t, { [ZONE_LABEL]: 'r-17' });
    // Everything that the script reads is given by the chart, or by Kubernetes.
    const given = [...zone.env.map(({ name }) => name), 'KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'];
    t.deepEqual(given.sort(), [...Object.keys(env), 'ZONE_LABEL'].sort());
    const [program, ...words] = [...zone.command, ...zone.args];
    t.is(program, 'node');
    const start = (more: Record<string, string>) => run(process.execPath, words, { env: { ...env, ...more } });

    await t.throwsAsync(start({ ZONE_LABEL: 'other' }), { message: /machine-1 has no label other/ });
    await t.throwsAsync(start({ ZONE_LABEL, NODE_NAME: 'machine-2' }), { message: /403 .*Forbidden/ });
    t.false(existsSync(config));
    await start({ ZONE_LABEL });
    t.deepEqual(JSON.parse(readFileSync(config, 'utf8')), { zone: 'r-17' });
    const mount = nodeOf(daemonSet).volumeMounts.find(({ name }) => name === 'zone');
    t.deepEqual(nodeOf(daemonSet).args.slice(-2), ['--config', `${mount?.mountPath}/node.json`]);
  },
);

withHelm('deploy, zones: a label of the pod needs no rights', (t) => {
  const manifests = rendered({ zone: { from: 'pod' } });
  const zone = nodeOf(only<Workload>(manifests, 'DaemonSet')).env.find(({ name }) => name === 'MESHCACHE_ZONE');
  t.is(zone?.valueFrom.fieldRef?.fieldPath, "metadata.labels['topology.kubernetes.io/zone']");
  t.false(manifests.some(({ kind }) => kind.startsWith('ClusterRole')));
});
