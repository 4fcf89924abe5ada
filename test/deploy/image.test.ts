import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { buildImage, type Container, type Image, memoryMount, missingForImages } from '../_support/deploy/image.js';
import { CHART, noHelm, noKubectl, TOOLS_ENV, tool } from '../_support/deploy/manifests.js';
import { OPERATORS_PROGRAMS, StandInCluster } from '../_support/deploy/stand-in-cluster.js';
import { hasDnsServer } from '../_support/discovery/dns-server.js';
import { shownDistance } from '../_support/docs/first-result.js';
import { followGuide } from '../_support/docs/guide.js';
import { until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

/** The longest that the image may be, Node apart. */
const BESIDES_NODE_MAX_MIB = 40;

const missing = missingForImages();
const noDns = hasDnsServer ? '' : 'no dnsmasq';
const whereBuilt = unless(missing, test.serial);
let image: Image;

if (missing === '')
  test.before(async (t) => {
    t.timeout(300_000);
    image = await buildImage();
  });
test.after.always(() => image?.remove());

/** A node in a container of the image, ready for clients. */
async function startNode(t: ExecutionContext, env: Readonly<Record<string, string>> = {}): Promise<Container> {
  const settings = { MESHCACHE_DISCOVERY_ADDR: '127.0.0.1:31990', MESHCACHE_GLOBAL_SEGMENT_SIZE: '16mb', ...env };
  const node = await image.start(image.config.Cmd, { env: settings });
  t.teardown(async () => {
    await node.stop();
    await node.ended;
  });
  await until(async () => (await node.exec(healthcheck())).status === 0);
  return node;
}

/** The command of the health check. */
function healthcheck(): readonly string[] {
  const [form, ...command] = image.config.Healthcheck.Test;
  if (form !== 'CMD') throw new Error(`the health check is in the form ${form}, this test runs CMD only`);
  return command;
}

whereBuilt('deploy, image: it says what it is, belongs to no user of the machine, and is small', (t) => {
  const { config, root } = image;
  const { version, license, description } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.deepEqual(config.Labels, {
    'org.opencontainers.image.title': 'meshcache',
    'org.opencontainers.image.description': description,
    'org.opencontainers.image.licenses': license,
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.revision': 'tested',
    'io.buildah.version': config.Labels['io.buildah.version'] as string,
  });
  t.is(config.User, '65532:65532');
  const nodeBytes = statSync(join(root, 'usr/local/bin/node')).size;
  const [kib] = execFileSync('du', ['-sk', root], { encoding: 'utf8' }).split('\t');
  const besidesNodeMib = (Number(kib) * 1024 - nodeBytes) / 2 ** 20;
  t.log(`${(Number(kib) / 1024).toFixed(1)} MiB, of which Node ${(nodeBytes / 2 ** 20).toFixed(1)} MiB`);
  t.true(besidesNodeMib < BESIDES_NODE_MAX_MIB, `${besidesNodeMib} MiB besides Node`);
});

whereBuilt('deploy, image: every package in it is listed for scanners, with its licence', (t) => {
  const listed = readdirSync(join(image.root, 'var/lib/dpkg/status.d'));
  t.true(listed.includes('libc6') && listed.includes('libibverbs1'), listed.join());
  for (const name of listed) {
    t.regex(readFileSync(join(image.root, 'var/lib/dpkg/status.d', name), 'utf8'), /^Package: .*\n(.*\n)*Version: /);
    t.true(existsSync(join(image.root, 'usr/share/doc', name, 'copyright')), name);
  }
  for (const name of ['apt', 'dpkg', 'npm', 'bash']) t.false(existsSync(join(image.root, 'usr/bin', name)), name);
});

whereBuilt('deploy, image: the demo runs without a root that can be written, root or capabilities', async (t) => {
  t.timeout(120_000);
  const demo = await image.start(['demo', '--json', '--conversations', '4', '--page-bytes', '64kb', '--seconds', '20']);
  const { status, stdout, stderr } = await demo.ended;
  t.is(status, 0, stderr);
  t.like(JSON.parse(stdout), { nodes: 3, conversations: 4, wrong_bytes: 0 });
});

for (const [where, env] of [
  ['where it is by default', {}],
  ['in a folder that engines share', { MESHCACHE_CLIENT_SOCKET: '/tmp/shared/node.sock' }],
] as const)
  whereBuilt(
    `deploy, image: a node is healthy, serves pages, and ends when asked; its socket is ${where}`,
    async (t) => {
      t.timeout(120_000);
      const node = await startNode(t, env);
      const socket = 'MESHCACHE_CLIENT_SOCKET' in env ? ['--socket', env.MESHCACHE_CLIENT_SOCKET] : [];
      const put = await node.exec(['meshcache', 'put', 'greeting', '--text', 'hello', ...socket]);
      t.is(put.status, 0, put.stderr);
      t.is((await node.exec(['meshcache', 'get', 'greeting', ...socket])).stdout, 'hello');
      t.not((await node.exec(['sh', '-c', 'echo > /usr/local/written'])).status, 0);
      // As the disk tier reserves its space.
      t.is((await node.exec(['fallocate', '-o', '0', '-l', '4096', '/tmp/reserved'])).status, 0);
      await node.stop();
      const { status, stderr } = await node.ended;
      t.is(status, 0, stderr);
      const other = await image.start(['ping']);
      t.not((await other.ended).status, 0, 'a container without a node is not healthy');
    },
  );

unless(missing || noHelm || noKubectl || noDns, test.serial)(
  'deploy, image: an operator who follows the page on Kubernetes reads verified pages in a pod of the chart',
  async (t) => {
    t.timeout(180_000);
    const cluster = await StandInCluster.create(image);
    t.teardown(async () => {
      const written = await cluster.remove();
      if (!t.passed) console.error(written);
    });
    const { folder } = cluster;
    const example = 'deploy/kubernetes/example/values.yaml';
    // The machine is smaller than those of the example.
    writeFileSync(join(folder, 'values.yaml'), readFileSync(example, 'utf8').replaceAll(/size: \d+gb/g, 'size: 64mb'));
    const packed = tool('helm', ['package', CHART, '--destination', folder]);
    t.is(packed.status, 0, packed.stderr);
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    const following = followGuide(readFileSync('docs/kubernetes.md', 'utf8'), {
      folder: process.cwd(),
      functions: OPERATORS_PROGRAMS,
      replaced: { [example]: join(folder, 'values.yaml'), [CHART]: join(folder, `meshcache-${version}.tgz`) },
      env: { PATH: TOOLS_ENV.PATH, HOME: folder, CLUSTER: folder, KUBECONFIG: '/dev/null' },
    });
    const [{ firstResult }] = await Promise.all([following, cluster.runPod()]);
    t.log(shownDistance(firstResult));
    t.is(await cluster.endPod(), 0);
  },
);

whereBuilt('deploy, image: the addon is in it, and finds the RDMA libraries of the image', async (t) => {
  t.timeout(60_000);
  const { status, stdout, stderr } = await (await image.start(['doctor', '--json'])).ended;
  t.is(status, 0, stderr);
  const { findings } = JSON.parse(stdout) as { findings: { subject: string; detail: string }[] };
  const detailOf = (name: string): string => findings.find(({ subject }) => subject === name)?.detail ?? 'none';
  t.regex(detailOf('native addon'), /^loaded/);
  // The step before it loads the libraries.
  if (detailOf('native addon').includes('with RDMA')) t.regex(detailOf('RDMA'), /step "device" fails/);
});

whereBuilt('deploy, image: init containers of the chart work, by user 0 without capabilities', async (t) => {
  t.timeout(60_000);
  const template = readFileSync('deploy/helm/meshcache/templates/engines.yaml', 'utf8');
  const copy = /command: \[sh, -c, '(cp [^']+)'\]/.exec(template)?.[1] as string;
  const folder = '/opt/meshcache-python';
  const listed = [
    '-c',
    `${copy} && cat ${folder}/meshcache/_version.py && node --input-type=module -e 'import "node:fs"'`,
  ];
  const init = await image.start(listed, { user: 0, entrypoint: ['sh'], mounts: [memoryMount(folder)] });
  const { status, stdout, stderr } = await init.ended;
  t.is(status, 0, stderr);
  t.regex(stdout, /"\d+\.\d+\.\d+\S*"/);
});
