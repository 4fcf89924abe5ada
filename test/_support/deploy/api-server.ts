import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noCertificates } from '../certificates.js';
import { freePort, until } from '../support.js';
import { noKubectl, TOOLS_ENV, type ToolRun, tool } from './manifests.js';

const TOKEN = 'token-of-a-test';

function missing(program: string, how: string): string {
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore', env: TOOLS_ENV });
  return error === undefined ? '' : `no ${program}; ${how}`;
}

/** Why no API server can be started here; empty if one can. */
export const noApiServer =
  missing('kube-apiserver', 'test/deploy/tools.sh --api-server builds it') ||
  missing('etcd', 'Debian: apt install etcd-server') ||
  noCertificates ||
  noKubectl;

/** An API server of Kubernetes with an etcd, in a temporary folder, on free ports of loopback: no kubelet, no controller. */
export class ApiServer {
  readonly #folder = mkdtempSync(join(tmpdir(), 'meshcache-api-'));
  readonly #children: ChildProcess[] = [];
  readonly #url: string;
  #log = '';

  private constructor(port: number) {
    this.#url = `https://127.0.0.1:${port}`;
  }

  /** Starts both; resolves when the server is ready. */
  static async start(): Promise<ApiServer> {
    const [port, etcdPort, peerPort] = [await freePort(), await freePort(), await freePort()];
    const server = new ApiServer(port);
    try {
      server.#startEtcd(etcdPort, peerPort);
      server.#startServer(port, etcdPort);
      await until(() => server.kubectl('get', '--raw', '/readyz').stdout === 'ok');
    } catch (error) {
      await server.stop();
      throw new Error(`kube-apiserver did not come up; it wrote:\n${server.#log}`, { cause: error });
    }
    return server;
  }

  kubectl(...args: readonly string[]): ToolRun {
    return tool('kubectl', [...this.#access(), ...args]);
  }

  /** Applies manifests on the server's side. */
  apply(text: string, ...args: readonly string[]): ToolRun {
    return tool('kubectl', [...this.#access(), 'apply', '--server-side', ...args, '-f', '-'], text);
  }

  /** Ends both and removes the folder. Idempotent. */
  async stop(): Promise<void> {
    for (const child of this.#children.splice(0).reverse()) {
      const ended = new Promise((resolve) => child.once('close', resolve));
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #access(): string[] {
    return [`--server=${this.#url}`, `--token=${TOKEN}`, '--insecure-skip-tls-verify', '--kubeconfig=/dev/null'];
  }

  #startEtcd(port: number, peerPort: number): void {
    const [clients, peers] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${peerPort}`];
    const args = [
      `--data-dir=${join(this.#folder, 'etcd')}`,
      '--unsafe-no-fsync',
      `--initial-cluster=default=${peers}`,
    ];
    args.push(`--listen-client-urls=${clients}`, `--advertise-client-urls=${clients}`);
    args.push(`--listen-peer-urls=${peers}`, `--initial-advertise-peer-urls=${peers}`);
    this.#start('etcd', args);
  }

  #startServer(port: number, etcdPort: number): void {
    const [key, users] = [join(this.#folder, 'accounts.key'), join(this.#folder, 'tokens.csv')];
    spawnSync('openssl', ['ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', key]);
    writeFileSync(users, `${TOKEN},test,test,system:masters\n`);
    const accounts = [`--service-account-key-file=${key}`, `--service-account-signing-key-file=${key}`];
    const args = [
      `--etcd-servers=http://127.0.0.1:${etcdPort}`,
      `--cert-dir=${this.#folder}`,
      `--token-auth-file=${users}`,
    ];
    args.push('--bind-address=127.0.0.1', `--secure-port=${port}`, '--service-cluster-ip-range=10.96.0.0/24');
    args.push('--authorization-mode=RBAC', '--service-account-issuer=https://test', ...accounts);
    this.#start('kube-apiserver', args);
  }

  #start(program: string, args: readonly string[]): void {
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], env: TOOLS_ENV });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#log = (this.#log + text).slice(-20_000);
    });
    this.#children.push(child);
  }
}
