import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';

/** What tells whether a host is this machine; a test or a simulator hands in its own. */
export interface HostNames {
  /** The addresses of a host name (or of an address itself); empty when it is not known. */
  resolve(host: string): Promise<readonly string[]>;
  /** The addresses of this machine's interfaces. */
  ownAddresses(): readonly string[];
}

export const systemHostNames: HostNames = {
  async resolve(host) {
    try {
      return (await lookup(host, { all: true })).map(({ address }) => address);
    } catch {
      return [];
    }
  },
  ownAddresses: () =>
    Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address)),
};

/** The address to listen on for a listed host when that is this machine; undefined when it is another one. */
export async function localAddressOf(host: string, names: HostNames): Promise<string | undefined> {
  const own = new Set(names.ownAddresses());
  const isOwn = (address: string): boolean =>
    address === '::1' || /^127(\.\d{1,3}){3}$/.test(address) || own.has(address);
  if (isOwn(host)) return host;
  if (host === 'localhost') return '127.0.0.1';
  return (await names.resolve(host)).find(isOwn);
}
