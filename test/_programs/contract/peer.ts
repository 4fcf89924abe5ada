/**
 * A serving process for the contract tests: shares a region, says where, and does what it is told by a line on stdin.
 */
import { existsSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { silentLogger } from '../../../src/base/environment/log.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { createTransport } from '../../../src/transport/create-transport.js';
import type { DataProtocol } from '../../../src/types.js';

/** Fills the bytes with the value that peer-process.ts calls `peerByte`, at every offset. */
function fill(bytes: Uint8Array): void {
  const period = 251 * 4096;
  for (let at = 0; at < Math.min(period, bytes.length); at++) bytes[at] = (at % 251) + 1;
  for (let at = period; at < bytes.length; at += period) {
    bytes.set(bytes.subarray(0, Math.min(period, bytes.length - at)), at);
  }
}

const [protocol, localHostname, length, security = '{}'] = process.argv.slice(2);
const transport = await createTransport(
  { protocol: protocol as DataProtocol, localHostname, tcpPort: 0, ...JSON.parse(security) },
  systemEnvironment({ log: silentLogger }),
);
if (transport.protocol !== protocol) throw new Error(`wanted ${protocol}, got ${transport.protocol}`);
const region = HostRegion.allocate(Number(length));
fill(region.bytes());
const mr = transport.registerMr(region.addr, region.length);

function say(line: string): void {
  writeSync(1, `${line}\n`);
}

for await (const line of createInterface({ input: process.stdin }).on('close', () => process.exit())) {
  if (line === 'where') say(JSON.stringify({ endpoint: transport.localEndpoint(), addr: `${mr.addr}`, rkey: mr.rkey }));
  const [, wake] = /^block (.+)$/.exec(line) ?? [];
  if (wake !== undefined) {
    say('blocking');
    // Waits until the file exists.
    while (!existsSync(wake)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    say('awake');
  }
}
