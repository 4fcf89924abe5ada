import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { silentLogger } from '../../../src/base/environment/log.js';
import { MeshCacheClient, type MeshCacheClientOptions } from '../../../src/client/meshcache-client.js';
import { HostRegion, type HostRegionOptions } from '../../../src/memory/host-region.js';
import { firstLine, startCli } from '../cli/run-cli.js';
import { freePort, freeze } from '../support.js';
import { verifiedEnd } from '../verified.js';

/** Milliseconds for calls that must succeed: longer than any machine stalls. */
export const PATIENT_TIMEOUT_MS = 60_000;

/** Attaches a client, which is closed with the test. */
export async function attach(
  t: ExecutionContext,
  socket: string,
  options: MeshCacheClientOptions = {},
): Promise<MeshCacheClient> {
  const client = await MeshCacheClient.connect(
    { socket, timeoutMs: PATIENT_TIMEOUT_MS, ...options },
    { log: silentLogger },
  );
  t.teardown(() => verifiedEnd([client], () => client.close()));
  return client;
}

/** Shared memory that is freed with the test. */
export function memoryOf(t: ExecutionContext, length: number, options: HostRegionOptions = {}): HostRegion {
  const region = HostRegion.allocate(length, options);
  t.teardown(() => region.free());
  return region;
}

/** A node in a process of its own, which can be stopped, killed and started again. */
export class NodeProcess {
  readonly socket: string;
  readonly #port: number;
  #child: ChildProcess | undefined;

  static async start(t: ExecutionContext): Promise<NodeProcess> {
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-client-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const node = new NodeProcess(join(folder, 'node.sock'), await freePort());
    t.teardown(() => node.kill());
    await node.start();
    return node;
  }

  private constructor(socket: string, port: number) {
    this.socket = socket;
    this.#port = port;
  }

  /** Starts the process; resolves when the node is ready. */
  async start(): Promise<void> {
    this.#child = startCli([
      ...['node', '--discovery-addr', `127.0.0.1:${this.#port}`, '--pool', '16mb', '--client-socket', this.socket],
      ...['-o', 'metrics_enabled=false', '-o', 'protocol=tcp', '--json'],
    ]);
    this.#child.stderr?.resume();
    await firstLine(this.#child);
  }

  freeze(): Promise<void> {
    return freeze(this.#child);
  }

  signal(name: 'SIGCONT' | 'SIGTERM'): void {
    this.#child?.kill(name);
  }

  /** Resolves when the process has ended. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }
}
