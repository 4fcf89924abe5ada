import net from 'node:net';
import type { ExecutionContext } from 'ava';
import type { Environment } from '../../../src/base/environment/environment.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import type { Labels } from '../../../src/base/environment/metrics-sink.js';
import { RpcClient } from '../../../src/rpc/client.js';
import { RpcServer } from '../../../src/rpc/server.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { patientClock } from '../patient-clock.js';
import { freePort } from '../support.js';
import { verifiedEnd } from '../verified.js';

/** An environment without log output whose counters can be read. */
export function testEnvironment(overrides: Partial<Environment> = {}): Environment & {
  readonly counts: Map<string, number>;
} {
  const counts = new Map<string, number>();
  const metrics = {
    count(name: string, amount = 1, labels: Labels = {}) {
      const key = [name, ...Object.values(labels)].join(' ');
      counts.set(key, (counts.get(key) ?? 0) + amount);
    },
    setGaugeProvider() {},
    setCounterProvider() {},
  };
  return { ...systemEnvironment({ clock: patientClock, log: silentLogger, metrics, ...overrides }), counts };
}

/** Starts a server on loopback that is stopped with the test. */
export async function startServer(t: ExecutionContext, env: Environment = testEnvironment()) {
  const server = new RpcServer({ host: '127.0.0.1', port: await freePort(), env });
  server.handle('echo', (params) => params);
  const port = await server.start();
  t.teardown(() => verifiedEnd([server], () => server.stop()));
  return { server, endpoint: { host: '127.0.0.1', port } };
}

export function newClient(t: ExecutionContext, env: Environment = testEnvironment()): RpcClient {
  const client = new RpcClient({ env });
  t.teardown(() => verifiedEnd([client], () => client.close()));
  return client;
}

/** A bare connection; `closed` resolves with all received bytes when the other side has closed it. */
export async function rawConnection(t: ExecutionContext, port: number) {
  const socket = net.connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => {});
  const closed = new Promise<Buffer>((resolve) => socket.on('close', () => resolve(Buffer.concat(chunks))));
  await new Promise((resolve) => socket.once('connect', resolve));
  return { socket, closed, received: () => Buffer.concat(chunks) };
}
