import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { Mr } from '../../src/transport/contract/transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { requestFrame } from '../_support/transport/raw-peer.js';
import { authContract } from '../contract/auth-contract.js';

const BYTES = 1000;
const region = HostRegion.allocate(BYTES);
region.bytes().fill(7);
test.after.always(() => region.free());
/** Of the server of each port. */
const registrations = new Map<number, Mr>();

/** Reads the region of the server at a port with a reader of its own. */
async function readFrom(t: ExecutionContext, port: number, env: Environment) {
  const reader = await TcpTransport.create({ host: '127.0.0.1', env });
  t.teardown(() => reader.close());
  const target = HostRegion.allocate(BYTES);
  t.teardown(() => target.free());
  const rkey = registrations.get(port)?.rkey ?? 1;
  const op = { remoteAddr: region.addr, rkey, localAddr: target.addr, length: BYTES };
  const [isRead = false] = await reader.batchRead([{ ...op, remoteEndpoint: `127.0.0.1:${port}` }]);
  return { reader, target, isRead };
}

authContract(test, {
  plane: 'data',
  hello: (flags) => Buffer.concat([Buffer.from('MCTP'), Buffer.from([1, 0, flags, 0]), Buffer.alloc(24)]),
  // Of an rkey that nobody has: it is answered, as not granted.
  request: () => requestFrame(1, [{ rkey: 1, addr: region.addr, length: BYTES }]),
  async serve(t, { env }) {
    const transport = await TcpTransport.create({ host: '127.0.0.1', env });
    t.teardown(() => transport.close());
    const { port } = transport.localEndpoints().tcp;
    registrations.set(port, transport.registerMr(region.addr, BYTES));
    return {
      port,
      answered: () => transport.stats().servedOps + transport.stats().refusedOps,
      connections: () => transport.stats().connections,
    };
  },
  async isBelieved(t, port, { env }) {
    const { target, isRead } = await readFrom(t, port, env);
    if (isRead) t.deepEqual(target.bytes(), region.bytes());
    return isRead;
  },
  async isAnswered(t, port, { env }) {
    const { reader, target, isRead } = await readFrom(t, port, env);
    t.is(target.bytes()[BYTES - 1], isRead ? 7 : 0);
    if (!isRead) t.false(reader.isReachable(`127.0.0.1:${port}`), 'it is not tried again at once');
    return isRead;
  },
});
