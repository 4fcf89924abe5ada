import type { Host } from '../base/environment/host.js';
import { isEveryAddress } from '../base/environment/network.js';

/** Whether a host name alone says that it is this machine: `localhost`, an address of 127.0.0.0/8, or ::1. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/**
 * Returns why a node must not listen at `host`: everyone who can reach it there would be a member. Undefined if it may,
 * because only this machine can reach it, or because peers prove that they are members (`isAuthenticated`).
 */
export function openNodeFault(host: string, isAuthenticated: boolean): string | undefined {
  if (isLoopbackHost(host) || isAuthenticated) return undefined;
  return (
    `this node would listen at ${host} without authentication: everyone who reaches it there could read, change and delete pages, and end nodes; ` +
    'set cluster_secret_file on all nodes (openssl rand -hex 32 > FILE), or tls_cert_file, tls_key_file and tls_ca_file; ' +
    'or allow_unauthenticated: true, if only nodes reach this network'
  );
}

/** The settings that determine who may use the door for Redis clients. */
interface RedisDoorSettings {
  readonly respPort: number | undefined;
  readonly respHost: string;
  readonly respPassword: string | undefined;
  readonly respPasswordFile: string | undefined;
  readonly respTlsCaFile: string | undefined;
  readonly usersFile: string | undefined;
}

/**
 * Returns why the door for Redis clients must not be opened: other hosts can reach it, and clients there would need no
 * password or certificate. Undefined if it may. `spell` writes a key as the configuration does. Files are read when the
 * node starts.
 */
export function openRedisDoorFault(settings: RedisDoorSettings, spell: (key: string) => string): string | undefined {
  const { respPort, respHost, respPassword, respPasswordFile, respTlsCaFile, usersFile } = settings;
  if (respPassword !== undefined && respPasswordFile !== undefined)
    return `configuration keys "${spell('resp_password')}" and "${spell('resp_password_file')}": give one of them, not both`;
  const proof = respPassword ?? respPasswordFile ?? usersFile ?? respTlsCaFile;
  if (respPort === undefined || isLoopbackHost(respHost) || proof !== undefined) return undefined;
  return (
    `configuration key "${spell('resp_host')}": ${respHost} is reached from other hosts, and nobody there would need a password; ` +
    `set ${spell('resp_password')}, ${spell('resp_password_file')} or ${spell('users_file')}, or ${spell('resp_tls_ca_file')} for clients with certificates, or listen on 127.0.0.1 ` +
    `(${spell('cluster_secret')} is not accepted there: it is for nodes)`
  );
}

/** Name resolution and addresses, which tell whether a listed host is this machine. */
export type HostNames = Pick<Host, 'resolve' | 'addresses'>;

/**
 * Returns the address to listen on for a listed host if that host is this machine; undefined if it is another one.
 *
 * Here a name may resolve to loopback (Debian lists 127.0.1.1 for a machine's own name in /etc/hosts), but to another
 * address elsewhere. In that case the wildcard address is returned, because nodes of this machine connect to loopback
 * and all others do not.
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
 * Whether `ownHost` is on the machine of a listed host, under any name. A machine with a listed master runs no other
 * one.
 */
export async function isHostOf(listed: string, ownHost: string, names: HostNames): Promise<boolean> {
  if (listed === ownHost) return true;
  const listenHost = await localAddressOf(listed, names);
  if (listenHost === undefined) return false;
  if (listenHost === ownHost || isEveryAddress(listenHost)) return true;
  return ownHost === 'localhost' ? listenHost === '127.0.0.1' : (await names.resolve(ownHost)).includes(listenHost);
}

/** Whether two loopback addresses stand for two different hosts. */
export function isOtherLoopback(address: string, ownHost: string | undefined): boolean {
  return ownHost !== undefined && ownHost !== address && isLoopbackAddress(address) && isLoopbackAddress(ownHost);
}

export function isLoopbackAddress(address: string): boolean {
  return address === '::1' || /^127(\.\d{1,3}){3}$/.test(address);
}
