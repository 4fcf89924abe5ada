import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** The command, as seen from build/dist and from build/test. */
const COMMAND = fileURLToPath(new URL('./cli.js', import.meta.url));
const READY_LIMIT_MS = 60_000;
const STATUS_LIMIT_MS = 30_000;

export interface NodeSettings {
  readonly name: string;
  readonly discoveryAddr: string;
  /** Folder of the client socket. */
  readonly folder: string;
  readonly pool: string;
  /** Configuration keys, in addition. */
  readonly options?: Readonly<Record<string, string>>;
}

/** What a cluster says of its nodes; only what a benchmark asks for. */
export interface ClusterStatus {
  readonly nodes: readonly {
    readonly node_id: string;
    readonly pool?: { readonly entries: number };
    readonly reads: Readonly<Record<string, number>>;
  }[];
  readonly totals: { readonly pool: { readonly entries: number } };
}

/** A node in a process of its own, started by the command that users start it by. */
export class NodeProcess {
  readonly clientSocket: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, clientSocket: string) {
    this.#child = child;
    this.clientSocket = clientSocket;
  }

  /** Starts a node. Resolves when it is ready. */
  static async start(settings: NodeSettings): Promise<NodeProcess> {
    const socket = join(settings.folder, `${settings.name}.sock`);
    const options = { node_id: settings.name, local_hostname: '127.0.0.1', metrics_port: '0', ...settings.options };
    const child = spawn(
      process.execPath,
      [
        ...[COMMAND, 'node', '--json', '--discovery-addr', settings.discoveryAddr],
        ...['--pool', settings.pool, '--client-socket', socket],
        ...Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`]),
      ],
      { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, MESHCACHE_LOG: 'error' } },
    );
    const timer = setTimeout(() => child.kill('SIGKILL'), READY_LIMIT_MS);
    try {
      const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
      await Promise.race([
        once(lines, 'line'),
        once(child, 'close').then(([status]) => {
          throw new Error(`node ${settings.name} ended with status ${status} before it was ready`);
        }),
      ]);
    } finally {
      clearTimeout(timer);
    }
    return new NodeProcess(child, socket);
  }

  /** Ends the process at once. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await closed;
  }
}

/** Asks a cluster for what `meshcache status` shows. */
export async function clusterStatus(discoveryAddr: string): Promise<ClusterStatus> {
  const words = [COMMAND, 'status', '--discovery-addr', discoveryAddr, '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, words, {
    timeout: STATUS_LIMIT_MS,
    maxBuffer: 2 ** 24,
  });
  return JSON.parse(stdout) as ClusterStatus;
}
