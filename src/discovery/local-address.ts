import type { Host } from '../base/environment/host.js';
import { isEveryAddress } from '../base/environment/network.js';

/** Name resolution and addresses, which tell whether a listed host is this machine. */
export type HostNames = Pick<Host, 'resolve' | 'addresses'>;

/**
 * The address to listen on for a listed host if that is this machine; undefined if it is another one.
 *
 * A name that means loopback here (Debian has 127.0.1.1 for a machine's own name in /etc/hosts) means another address
 * elsewhere. Then the wildcard address is returned, because nodes of this machine connect to loopback and all others do
 * not.
 */
export async function localAddressOf(host: string, names: HostNames): Promise<string | undefined> {
  const addresses = names.addresses().map(({ address }) => address);
  const own = new Set(addresses);
  const isOwn = (address: string): boolean => isLoopbackAddress(address) || own.has(address);
  if (isOwn(host)) return host;
  if (host === 'localhost') return '127.0.0.1';
  const resolved = (await names.resolve(host)).filter(isOwn);
  const beyond = resolved.find((address) => !isLoopbackAddress(address));
  if (beyond !== undefined || resolved.length === 0) return beyond;
  const isAlone = addresses.every(isLoopbackAddress);
  if (isAlone) return resolved[0];
  return resolved.some((address) => !address.includes(':')) ? '0.0.0.0' : '::';
}

/**
 * Whether `ownHost` is on the machine of a listed host, under any name. A machine with a listed master runs no further
 * one.
 */
export async function isHostOf(listed: string, ownHost: string, names: HostNames): Promise<boolean> {
  if (listed === ownHost) return true;
  const listenHost = await localAddressOf(listed, names);
  if (listenHost === undefined) return false;
  if (listenHost === ownHost || isEveryAddress(listenHost)) return true;
  return ownHost === 'localhost' ? listenHost === '127.0.0.1' : (await names.resolve(ownHost)).includes(listenHost);
}

/** Whether two loopback addresses stand for two hosts. */
export function isOtherLoopback(address: string, ownHost: string | undefined): boolean {
  return ownHost !== undefined && ownHost !== address && isLoopbackAddress(address) && isLoopbackAddress(ownHost);
}

export function isLoopbackAddress(address: string): boolean {
  return address === '::1' || /^127(\.\d{1,3}){3}$/.test(address);
}
