/*
 * An engine that serves one region, in a process of its own. The argument is {@link ServingOptions} as JSON; the first line that it writes is
 * {@link ServedRegion} as JSON. With an IPC channel it lives as long as that, and does what it is told by messages.
 */

import { silentLogger } from '../../../src/base/environment/log.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { TransferEngine } from '../../../src/native/transfer-engine.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { tiled } from '../../_support/rdma/bytes.js';
import { knownHost } from '../../_support/rdma/known-host.js';
import type { ServedRegion, ServingCommand, ServingOptions } from '../../_support/rdma/serving-process.js';

const { length, seed, ...options } = JSON.parse(process.argv[2] as string) as ServingOptions;
const engine = new TransferEngine({ ...options, host: knownHost, env: systemEnvironment({ log: silentLogger }) });
const region = HostRegion.allocate(length);
region.bytes().set(tiled(seed, length));
const handle = engine.registerMr(region.addr, length);
const served: ServedRegion = { endpoint: engine.localEndpoint(), addr: String(handle.addr), rkey: handle.rkey, length };
process.stdout.write(`${JSON.stringify(served)}\n`);

async function execute(command: ServingCommand): Promise<unknown> {
  if (command === 'deregister') return engine.deregisterMr(handle);
  if (command === 'stats') return engine.stats();
  return region.bytes().fill(command.fill) && null;
}

process.on('message', (command: ServingCommand) => {
  void execute(command).then((value) => process.send?.({ value }));
});
process.on('disconnect', () => process.exit());
// Serving alone does not keep a process alive; without a channel it runs until it is killed.
if (process.send === undefined) setInterval(() => {}, 2 ** 30);
