import type { Host } from '../../base/environment/host.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { isLoopbackAddress } from '../../discovery/local-address.js';

/** The own address on the route to `target`: what the system would send from. */
export async function ownAddressTowards(target: Endpoint, host: Host): Promise<string> {
  try {
    const [address] = await host.resolve(target.host);
    if (address === undefined) throw new Error(`no address of ${target.host} is known`);
    if (isLoopbackAddress(address) && !isLoopbackAddress(target.host) && target.host !== 'localhost') {
      return addressBeyondLoopback(host) ?? address;
    }
    return await host.addressTowards({ host: address, port: target.port });
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
function addressBeyondLoopback(host: Host): string | undefined {
  const reachable = host.addresses().filter(({ isInternal, isLinkLocal }) => !isInternal && !isLinkLocal);
  return (reachable.find(({ family }) => family === 'IPv4') ?? reachable[0])?.address;
}
