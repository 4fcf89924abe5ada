import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import type { NameAnswer, NameQuery, NameService } from '../base/environment/name-service.js';
import { type Endpoint, formatEndpoint } from '../base/environment/network.js';

/** Longest wait for one name server; each one is asked twice. */
const SERVER_TIMEOUT_MS = 1_500;
/** Most targets of SRV records whose addresses are looked up, first by priority, then by name. */
const TARGETS_MAX_COUNT = 32;
const RESOLVER_FILE = '/etc/resolv.conf';
/** A name with at least this many dots is tried as it is before the search domains. The default is the system's own. */
const DEFAULT_DOTS = 1;
/** Errors of a name server that mean that no such record exists. */
const NOTHING = new Set(['ENOTFOUND', 'ENODATA']);

/** The name servers of this machine. */
export const systemNames: NameService = {
  async lookUp(query, signal) {
    const resolver = new Resolver({ timeout: SERVER_TIMEOUT_MS, tries: 2 });
    const cancel = (): void => resolver.cancel();
    signal?.addEventListener('abort', cancel);
    try {
      if (query.server !== undefined) resolver.setServers([await addressOf(query.server)]);
      for (const name of query.server === undefined ? searchedNames(query.name, readResolverFile()) : [query.name]) {
        if (signal?.aborted) throw new Error('the answer is no longer wanted');
        const answer = await ask(resolver, { ...query, name });
        if (answer.endpoints.length > 0) return answer;
      }
      return { endpoints: [], ttlS: undefined };
    } finally {
      signal?.removeEventListener('abort', cancel);
    }
  },
};

/** Returns the names to try for `name`, in order. `file` is the text of a resolv.conf. */
export function searchedNames(name: string, file: string): string[] {
  let domains: readonly string[] = [];
  let dots = DEFAULT_DOTS;
  for (const line of file.split('\n')) {
    const [key, ...values] = line.trim().split(/\s+/);
    if (key === 'search' || key === 'domain') domains = values;
    const given = key === 'options' ? values.map((value) => /^ndots:(\d+)$/.exec(value)?.[1]).find(Boolean) : undefined;
    if (given !== undefined) dots = Number(given);
  }
  const searched = domains.map((domain) => `${name}.${domain.replace(/\.$/, '')}`);
  return name.split('.').length > dots ? [name, ...searched] : [...searched, name];
}

function ask(resolver: Resolver, { kind, name }: NameQuery): Promise<NameAnswer> {
  return kind === 'addresses' ? addresses(resolver, name) : services(resolver, name);
}

async function addresses(resolver: Resolver, name: string): Promise<NameAnswer> {
  const v4 = await orNothing(resolver.resolve4(name, { ttl: true }));
  const records = v4.length > 0 ? v4 : await orNothing(resolver.resolve6(name, { ttl: true }));
  return {
    endpoints: records.map(({ address }) => ({ host: address, port: 0 })),
    ttlS: records.length === 0 ? undefined : Math.min(...records.map(({ ttl }) => ttl)),
  };
}

async function services(resolver: Resolver, name: string): Promise<NameAnswer> {
  const records = await orNothing(resolver.resolveSrv(name));
  records.sort((a, b) => a.priority - b.priority || (a.name < b.name ? -1 : 1) || a.port - b.port);
  const resolved = await Promise.allSettled(
    records.slice(0, TARGETS_MAX_COUNT).map(async ({ name: target, port }) => {
      const { endpoints } = await addresses(resolver, target);
      return endpoints.map(({ host }) => ({ host, port }));
    }),
  );
  const endpoints = resolved.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
  const failed = resolved.find((one) => one.status === 'rejected');
  // A target whose name server does not answer must not hide the others.
  if (endpoints.length === 0 && failed !== undefined) throw failed.reason;
  return { endpoints, ttlS: undefined };
}

async function orNothing<T>(records: Promise<T[]>): Promise<T[]> {
  try {
    return await records;
  } catch (error) {
    if (NOTHING.has((error as NodeJS.ErrnoException).code ?? '')) return [];
    throw error;
  }
}

/** Returns the address of a name server, because the resolver does not accept names of servers. */
async function addressOf({ host, port }: Endpoint): Promise<string> {
  const isAddress = host.includes(':') || /^\d+(\.\d+){3}$/.test(host);
  if (isAddress) return formatEndpoint({ host, port });
  const { endpoints } = await systemNames.lookUp({ name: host, kind: 'addresses' });
  const [first] = endpoints;
  if (first === undefined) throw new Error(`the name server ${host} has no address`);
  return formatEndpoint({ host: first.host, port });
}

function readResolverFile(): string {
  try {
    return readFileSync(RESOLVER_FILE, 'utf8');
  } catch {
    return '';
  }
}
