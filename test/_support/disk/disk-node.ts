import type { ChildProcess } from 'node:child_process';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { MeshCacheClient } from '../../../src/client/meshcache-client.js';
import { collect, firstLine, startCli } from '../cli/run-cli.js';
import { content, freePort, until } from '../support.js';
import { temporaryFolder } from './mounts.js';

export const PAGE_BYTES = 64 * 1024;
/** A call may take 5 seconds, whatever the disk does, and as long again on a busy machine. */
export const CALL_MAX_MS = 2 * 5_000;

/** What a node is started with. */
export interface DiskNodePlace {
  readonly path: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Where the node listens; of a node that was here before. Default: anew. */
  readonly at?: DiskNodeAddresses;
}

/** Where a node listens. */
export interface DiskNodeAddresses {
  readonly socket: string;
  readonly discovery: number;
  readonly control: number;
  readonly metrics: number;
}

/** A process `meshcache node` with a disk tier, and a client of it. */
export interface DiskNode {
  readonly child: ChildProcess;
  readonly client: MeshCacheClient;
  readonly at: DiskNodeAddresses;
  readonly health: () => Promise<{ readonly ok: boolean; readonly text: string }>;
  readonly log: () => string;
}

/** Addresses that nobody has. */
export async function freeAddresses(t: ExecutionContext): Promise<DiskNodeAddresses> {
  const [discovery, control, metrics] = [await freePort(), await freePort(), await freePort()];
  return { socket: join(temporaryFolder(t), 'socket'), discovery, control, metrics };
}

/** Starts a node with a pool of 8 pages and a disk tier; the caller waits for its first line. */
export function spawnDiskNode(
  t: ExecutionContext,
  { path, env = {} }: DiskNodePlace,
  at: DiskNodeAddresses,
): ChildProcess {
  const ports = [`metrics_port=${at.metrics}`, `control_port=${at.control}`];
  const settings = [`client_socket=${at.socket}`, 'disk_enabled=true', 'protocol=tcp', ...ports];
  const more = [`disk_path=${path}`, 'disk_size=32mb', 'local_hostname=127.0.0.1', 'reuse_quarantine_ms=0'];
  const args = ['node', '--discovery-addr', `127.0.0.1:${at.discovery}`, '--pool', '512kb'];
  const options = [...settings, ...more].flatMap((setting) => ['-o', setting]);
  const child = startCli([...args, ...options], { env: { ...env, MESHCACHE_LOG: 'info' } });
  t.teardown(() => void child.kill('SIGKILL'));
  return child;
}

/** Starts such a node; resolves when it has joined. */
export async function startDiskNode(t: ExecutionContext, place: DiskNodePlace): Promise<DiskNode> {
  const at = place.at ?? (await freeAddresses(t));
  const child = spawnDiskNode(t, place, at);
  let log = '';
  child.stderr?.on('data', (text: Buffer) => {
    log += text.toString();
  });
  await firstLine(child).catch((error: unknown) => {
    throw new Error(`${String(error)}: ${log}`);
  });
  const client = await MeshCacheClient.connect({ socket: at.socket, timeoutMs: CALL_MAX_MS });
  t.teardown(() => client.close());
  // On a busy machine the node may take longer to answer than a client waits.
  await until(() => client.isConnected);
  const health = async () => {
    const response = await fetch(`http://127.0.0.1:${at.metrics}/healthz`);
    return { ok: response.ok, text: await response.text() };
  };
  return { child, client, at, health, log: () => log };
}

/** Whether anything listens at the addresses of a node. */
export async function listens({ socket, ...ports }: DiskNodeAddresses): Promise<boolean> {
  const targets = [{ path: socket }, ...Object.values(ports).map((port) => ({ port, host: '127.0.0.1' }))];
  const accepted = targets.map(
    (target) =>
      new Promise<boolean>((resolve) => {
        const connection = connect(target);
        connection.once('connect', () => resolve(true)).once('error', () => resolve(false));
        connection.once('connect', () => connection.destroy());
      }),
  );
  return (await Promise.all(accepted)).includes(true);
}

/** Keys of pages whose contents follow from their numbers. */
export function keysOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}`);
}

function contentOf(key: string): Uint8Array {
  return content(Number(key.slice(key.lastIndexOf('-') + 1)), PAGE_BYTES);
}

/** Sets the pages one after the other; whether each was set. */
export async function setAll(
  t: ExecutionContext,
  client: MeshCacheClient,
  keys: readonly string[],
): Promise<boolean[]> {
  const results: boolean[] = [];
  for (const key of keys) results.push(await timed(t, () => client.set(key, contentOf(key))));
  return results;
}

/** Whether each page can be read; a page that is read has its bytes. */
export async function readAll(
  t: ExecutionContext,
  client: MeshCacheClient,
  keys: readonly string[],
): Promise<boolean[]> {
  const results: boolean[] = [];
  for (const key of keys) {
    const target = new Uint8Array(PAGE_BYTES);
    const isRead = await timed(t, () => client.get(key, target));
    if (isRead) t.deepEqual(target, contentOf(key), key);
    results.push(isRead);
  }
  return results;
}

/** Waits until each page can be read: right after it has hung, a disk may still be too busy to answer in time. */
export async function found(t: ExecutionContext, { client, log }: DiskNode, keys: readonly string[]): Promise<void> {
  let missing = keys;
  await until(async () => {
    const isRead = await readAll(t, client, missing);
    missing = missing.filter((_, i) => !isRead[i]);
    return missing.length === 0;
  }).catch(() => t.fail(`${missing.join(', ')} are not found: ${log()}`));
}

/** Ends the node; resolves when its process is gone. */
export async function end(node: DiskNode): Promise<void> {
  const ended = collect(node.child);
  node.child.kill('SIGTERM');
  await ended;
}

/** The call's result; it must not take longer than a call may. */
export async function timed<T>(t: ExecutionContext, call: () => Promise<T>): Promise<T> {
  const startMs = performance.now();
  const result = await call();
  const tookMs = performance.now() - startMs;
  t.true(tookMs < CALL_MAX_MS, `a call took ${tookMs.toFixed(0)} ms`);
  return result;
}
