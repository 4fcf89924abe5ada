import type { ExecutionContext } from 'ava';
import type { Environment } from '../../../src/base/environment/environment.js';
import { DiscoveryClient, type DiscoveryClientOptions } from '../../../src/discovery/client.js';
import { DiscoveryServer, type DiscoveryServerOptions } from '../../../src/discovery/server.js';
import type { HostNames } from '../../../src/net/loopback.js';
import { NodeInfo, type NodeInfoInit } from '../../../src/types.js';
import type { ManualClock } from '../clock.js';
import { testEnvironment } from '../rpc/server.js';
import { freePort, PATIENCE_MS } from '../support.js';
import { verifiedEnd } from '../verified.js';

export function nodeOf(nodeId: string, init: Partial<NodeInfoInit> = {}): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort: 7000, tcpPort: 7001, incarnation: 1, ...init });
}

export async function startMaster(
  t: ExecutionContext,
  options: Partial<DiscoveryServerOptions> & { port?: number } = {},
) {
  const { port = await freePort() } = options;
  const master = new DiscoveryServer('127.0.0.1', port, { env: testEnvironment(), ...options });
  await master.start();
  t.teardown(() => verifiedEnd([master], () => master.stop()));
  return { master, port, addr: `127.0.0.1:${port}` };
}

/** A host with these addresses; `resolve` gives the addresses of names. */
export function hostOf(addresses: readonly string[], resolve: (name: string) => readonly string[]): HostNames {
  return {
    resolve: async (name) => resolve(name),
    addresses: () =>
      addresses.map((address) => ({
        address,
        family: address.includes(':') ? 'IPv6' : 'IPv4',
        isInternal: false,
        isLinkLocal: false,
      })),
  };
}

/** A client that is not started, and is stopped with the test; `seen` has every list that it reported. */
export function newMember(
  t: ExecutionContext,
  addr: string,
  node: NodeInfo,
  options: Partial<DiscoveryClientOptions> = {},
) {
  const seen: string[][] = [];
  const client = new DiscoveryClient(addr, node, {
    env: testEnvironment(),
    ...options,
    onMembers: (members) => seen.push([...members.keys()].sort()),
  });
  t.teardown(() => verifiedEnd([client], () => client.stop()));
  return { client, seen, ids: () => [...client.members().keys()].sort().join() };
}

/**
 * Turns the clock step by step, with input and output in between, until `condition` holds; rejects after `PATIENCE_MS`.
 */
export async function turnUntil(clock: ManualClock, condition: () => boolean, stepMs = 50): Promise<void> {
  const giveUpAt = performance.now() + PATIENCE_MS;
  while (!condition()) {
    if (performance.now() > giveUpAt) throw new Error(`condition not met within ${PATIENCE_MS} ms: ${condition}`);
    clock.advance(stepMs);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** An environment that keeps its log messages. */
export function loggedEnvironment(overrides: Partial<Environment> = {}) {
  const messages: string[] = [];
  const log: Environment['log'] = { log: (level, message) => void messages.push(`${level} ${message}`) };
  return { env: testEnvironment({ log, ...overrides }), messages };
}
