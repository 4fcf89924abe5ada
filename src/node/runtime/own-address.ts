import type { Host } from '../../base/environment/host.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { isLoopbackAddress } from '../../discovery/local-address.js';

/**
 * This host's address on the route to the first of `targets` that it has a route to: the source address that the system would use. Throws `ConfigError`
 * if there is none.
 */
export async function ownAddressTowards(targets: readonly Endpoint[], host: Host): Promise<string> {
  let cause: unknown;
  for (const target of targets) {
    try {
      return await addressTowards(target, host);
    } catch (error) {
      cause ??= error;
    }
  }
  const names = targets.map((target) => `"${target.host}"`).join(' or ');
  throw new ConfigError(
    `no route from this host to ${names} (configuration key "discovery_addr"); ` +
      'check the name and the network, or set local_hostname to the address that the other nodes reach',
    { cause },
  );
}

async function addressTowards(target: Endpoint, host: Host): Promise<string> {
  const [address] = await host.resolve(target.host);
  if (address === undefined) throw new Error(`${target.host} resolves to no address`);
  if (isLoopbackAddress(address) && !isLoopbackAddress(target.host) && target.host !== 'localhost') {
    return addressBeyondLoopback(host) ?? address;
  }
  return host.addressTowards({ host: address, port: target.port });
}

/**
 * What a node with the configured `local_hostname` is reached at by others: that name, unless it is the machine's own and means loopback here (Debian
 * has 127.0.1.1 for it in /etc/hosts), where the node would listen for itself alone. Then an address of this machine, if it has one beyond loopback.
 */
export async function reachableName(name: string, host: Host): Promise<string> {
  const isOwn = name === host.name || host.name.startsWith(`${name}.`) || name.startsWith(`${host.name}.`);
  if (!isOwn || name === 'localhost') return name;
  const addresses = await host.resolve(name);
  if (addresses.length === 0 || !addresses.every(isLoopbackAddress)) return name;
  return addressBeyondLoopback(host) ?? name;
}

/**
 * An address of this machine beyond loopback, which its own name may resolve to here (127.0.1.1 in /etc/hosts) but not on other machines.
 * Undefined when this machine has none.
 */
function addressBeyondLoopback(host: Host): string | undefined {
  const reachable = host.addresses().filter(({ isInternal, isLinkLocal }) => !isInternal && !isLinkLocal);
  return (reachable.find(({ family }) => family === 'IPv4') ?? reachable[0])?.address;
}
