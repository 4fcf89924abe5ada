import dgram from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { ConfigError } from '../base/errors.js';
import type { Endpoint } from '../base/network.js';
import { isLoopbackAddress } from '../discovery/local-address.js';

/**
 * The own address on the route to `target`: what the kernel would send from. Nothing is sent
 * (connecting a datagram socket only consults the routing table).
 */
export async function ownAddressTowards(target: Endpoint): Promise<string> {
  try {
    const { address, family } = await lookup(target.host);
    if (isLoopbackAddress(address) && !isLoopbackAddress(target.host) && target.host !== 'localhost') {
      return addressBeyondLoopback() ?? address;
    }
    return await sourceAddress(address, target.port, family === 6 ? 'udp6' : 'udp4');
  } catch (cause) {
    throw new ConfigError(
      `no route from this host to "${target.host}" (configuration key "discovery_addr"); ` +
        'check the name and the network, or set local_hostname to the address that the other nodes reach',
      { cause },
    );
  }
}

/**
 * The name of this machine may be loopback here (127.0.1.1 in /etc/hosts) and is another address to the other machines.
 * Undefined: this machine has no other one.
 */
function addressBeyondLoopback(): string | undefined {
  const entries = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  const reachable = entries.filter(({ internal, scopeid }) => !internal && !scopeid);
  return (reachable.find(({ family }) => family === 'IPv4') ?? reachable[0])?.address;
}

function sourceAddress(address: string, port: number, type: 'udp4' | 'udp6'): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = dgram.createSocket(type);
    socket.once('error', (error) => {
      socket.close();
      reject(error);
    });
    socket.connect(port, address, () => {
      const own = socket.address().address;
      socket.close();
      resolve(own);
    });
  });
}
