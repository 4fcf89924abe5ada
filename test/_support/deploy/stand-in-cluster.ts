import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '../support.js';
import type { Container, Image } from './image.js';
import { manifestsIn, nodeOf, only, type Workload } from './manifests.js';
import { nodeContainer, passes } from './pod.js';

/** The name by which nodes of the chart find each other. */
const SERVICE = 'meshcache.meshcache.svc.cluster.local';

/**
 * `kubectl` and `helm` as an operator calls them, for a shell. What needs no cluster is done by the real programs; pods
 * are those of the {@link StandInCluster} whose folder is `$CLUSTER`.
 */
export const OPERATORS_PROGRAMS = `
kubectl() {
  case "$*" in
    'apply -k '*) command kubectl kustomize "$3" ;;
    *' create secret '*) command kubectl "$@" --dry-run=client --output=json > "$CLUSTER/secret.json" ;;
    '-n meshcache exec daemonset/meshcache -c meshcache -- '*) shift 7; $(cat "$CLUSTER/under") "$@" </dev/null ;;
    *) echo "no stand-in for kubectl $*"; return 1 ;;
  esac
}
helm() {
  case "$*" in
    'upgrade --install '*' --wait') shift 2; command helm template "$@" > "$CLUSTER/unfinished" ;;
    *) echo "no stand-in for helm $*"; return 1 ;;
  esac
  mv "$CLUSTER/unfinished" "$CLUSTER/manifests.yaml"
  until [ -e "$CLUSTER/is-ready" ]; do sleep .1; done
}
`;

/** A cluster of one machine that runs one pod of the chart: in a container of the image, as the pod's manifest says. */
export class StandInCluster {
  readonly folder: string;
  readonly #image: Image;
  #dns: ChildProcess | undefined;
  #pod: { readonly daemonSet: Workload; readonly container: Container } | undefined;
  #folders = 0;

  private constructor(folder: string, image: Image) {
    this.folder = folder;
    this.#image = image;
  }

  static async create(image: Image): Promise<StandInCluster> {
    return new StandInCluster(await mkdtemp(join(tmpdir(), 'meshcache-cluster-')), image);
  }

  /** Waits for the manifests that `helm` makes, and starts the pod; `helm` ends when the pod is ready. */
  async runPod(): Promise<void> {
    const path = join(this.folder, 'manifests.yaml');
    await until(() => existsSync(path));
    const manifests = manifestsIn(await readFile(path, 'utf8'));
    const daemonSet = only<Workload>(manifests, 'DaemonSet');
    const { args, ...differences } = await nodeContainer(manifests, daemonSet, {
      fields: { 'spec.nodeName': 'machine-1', 'status.podIP': '127.0.0.1' },
      secrets: await this.#secrets(),
      writeFolder: (files) => this.#writeFolder(files),
    });
    const container = await this.#image.start(args, differences);
    this.#pod = { daemonSet, container };
    await until(async () => (await container.exec(['id'])).status === 0);
    this.#startDns(await container.pid());
    const node = nodeOf(daemonSet);
    if (!(await passes(node.readinessProbe, node, container))) throw new Error('the pod has ended before it was ready');
    await writeFile(join(this.folder, 'under'), container.under.join(' '));
    await writeFile(join(this.folder, 'is-ready'), '');
  }

  /** Ends the pod as a kubelet does. Returns the status of its container. */
  async endPod(): Promise<number | null> {
    if (this.#pod === undefined) throw new Error('no pod has been started');
    const { daemonSet, container } = this.#pod;
    // It fails where no other node answers.
    await container.exec(nodeOf(daemonSet).lifecycle.preStop.exec.command);
    await container.stop();
    return (await container.ended).status;
  }

  /** Ends everything. Returns what the pod has written. */
  async remove(): Promise<string> {
    this.#dns?.kill('SIGKILL');
    await this.#pod?.container.stop();
    const { stdout = 'no pod has been started', stderr = '' } = (await this.#pod?.container.ended) ?? {};
    await rm(this.folder, { recursive: true, force: true });
    return `${stdout}\n${stderr}`;
  }

  async #secrets(): Promise<Record<string, Record<string, string>>> {
    const { metadata, data } = JSON.parse(await readFile(join(this.folder, 'secret.json'), 'utf8'));
    const texts = Object.entries(data as Record<string, string>).map(([key, value]) => [key, atob(value)]);
    return { [metadata.name]: Object.fromEntries(texts) };
  }

  /** Files that only root may read. */
  async #writeFolder(files: Readonly<Record<string, string>>): Promise<string> {
    const folder = join(this.folder, `files-${this.#folders++}`);
    await mkdir(folder);
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text, { mode: 0o400 });
    return folder;
  }

  /** Serves the name of the headless Service in the network of the process `pid`, at the port of the system's server. */
  #startDns(pid: number): void {
    const fixed = ['--keep-in-foreground', '--conf-file=/dev/null', '--no-hosts', '--no-resolv', '--pid-file='];
    const place = ['--listen-address=127.0.0.1', '--bind-interfaces', '--user=root'];
    const command = ['dnsmasq', ...fixed, ...place, '--local=/local/', `--address=/${SERVICE}/127.0.0.1`];
    this.#dns = spawn('nsenter', [`--net=/proc/${pid}/ns/net`, ...command], { stdio: 'ignore' });
  }
}
