/*
 * Reads by RDMA, in turn, into as many regions as the arguments say, of so many bytes each, and writes `{"read", "right"}`: how
 * many reads succeeded, and how many brought the right bytes.
 */

import { HostRegion } from '../../../src/memory/host-region.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { createTransport } from '../../../src/transport/create-transport.js';
import { content } from '../../_support/support.js';

const READ_BYTES = 4096;

const [host, regions, regionBytes] = process.argv.slice(2) as [string, string, string];
const config = { protocol: 'rdma', localHostname: host, tcpPort: 0 } as const;
const env = systemEnvironment({ log: { log: (_level, message, fields) => console.error(message, fields) } });
const [owner, reader] = [await createTransport(config, env), await createTransport(config, env)];
const source = HostRegion.allocate(READ_BYTES);
source.bytes().set(content(1, READ_BYTES));
const { rkey } = owner.registerMr(source.addr, READ_BYTES);
let [read, right] = [0, 0];
for (let i = 0; i < Number(regions); i++) {
  const target = HostRegion.allocate(Number(regionBytes));
  const op = { localAddr: target.addr, remoteAddr: source.addr, rkey, length: READ_BYTES };
  const [isRead] = await reader.batchRead([{ ...op, remoteEndpoint: owner.localEndpoint() }]);
  if (isRead) read++;
  if (Buffer.compare(target.bytes(0, READ_BYTES), source.bytes()) === 0) right++;
}
await Promise.all([owner.close(), reader.close()]);
process.stdout.write(JSON.stringify({ read, right }));
