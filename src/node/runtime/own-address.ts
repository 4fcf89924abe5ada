import type { Host } from '../../base/environment/host.js';
import { type Endpoint, isEveryAddress } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { isLoopbackAddress, localAddressOf } from '../../net/loopback.js';

/**
 * This host's address on the route to the first reachable of `targets`: the source address that the system would use.
 * Throws `ConfigError` if there is none.
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
 * The address at which others reach a node with the configured `local_hostname`: that name, unless it is the machine's
 * own name and resolves to loopback here (Debian maps it to 127.0.1.1 in /etc/hosts), where only this machine could
 * reach the node. In that case, an address of this machine beyond loopback, if it has one.
 */
export async function reachableName(name: string, host: Host): Promise<string> {
  const isOwn = name === host.name || host.name.startsWith(`${name}.`) || name.startsWith(`${host.name}.`);
  if (!isOwn || name === 'localhost') return name;
  const addresses = await host.resolve(name);
  if (addresses.length === 0 || !addresses.every(isLoopbackAddress)) return name;
  return addressBeyondLoopback(host) ?? name;
}

/**
 * An address of this machine beyond loopback. Its own name may resolve to loopback here (127.0.1.1 in /etc/hosts) but
 * not on other machines. Undefined if the machine has no such address.
 */
function addressBeyondLoopback(host: Host): string | undefined {
  const reachable = host.addresses().filter(({ isInternal, isLinkLocal }) => !isInternal && !isLinkLocal);
  return (reachable.find(({ family }) => family === 'IPv4') ?? reachable[0])?.address;
}

/** Reason why nodes on other hosts cannot reach a node. */
export interface ReachFault {
  /**
   * Whether other hosts are certainly meant to reach the node. If so, it would be a member whose pages nobody can read.
   */
  readonly isCertain: boolean;
  readonly text: string;
}

/**
 * Explains why nodes on other hosts cannot reach `own`, this node's address; undefined if no reason is known. `listed`:
 * the discovery addresses.
 */
export async function reachFault(
  own: string,
  listed: readonly Endpoint[],
  host: Host,
): Promise<ReachFault | undefined> {
  const subject = `other hosts cannot reach this node at ${JSON.stringify(own)}`;
  const advice = 'set local_hostname to the address that the other nodes reach';
  if (/^fe[89ab][0-9a-f]:/i.test(own)) {
    const text = `${subject}: it is a link-local address, and the scope that it needs is known on this host only; ${advice}`;
    return { isCertain: true, text };
  }
  if (/^(2(2[4-9]|3\d)\.|ff[0-9a-f]{2}:)/i.test(own)) {
    return { isCertain: true, text: `${subject}: it is a multicast address; ${advice}` };
  }
  const addresses = isLoopbackAddress(own) ? [own] : await host.resolve(own);
  const isLoopback = addresses.length > 0 && addresses.every(isLoopbackAddress);
  const isOneHost = ({ host: name }: Endpoint): boolean =>
    name === 'localhost' || isLoopbackAddress(name) || isEveryAddress(name);
  if (!isLoopback || listed.length === 0 || listed.some(isOneHost)) return undefined;
  const local = await Promise.all(listed.map((one) => localAddressOf(one.host, host)));
  return { isCertain: local.every((one) => one === undefined), text: `${subject}: it is loopback; ${advice}` };
}
