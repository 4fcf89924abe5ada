import { parseDiscoveryAddress } from './discovery-address.js';
import { type Field, text } from './fields.js';

/** Settings for discovery through etcd. */
export interface EtcdSettings {
  /** Name and password for etcd, if it requires them. */
  readonly etcdUser: string | undefined;
  readonly etcdPassword: string | undefined;
  /**
   * PEM files for etcd over TLS: the authority that has signed its certificates, and the certificate and key of this
   * node.
   */
  readonly etcdCaFile: string | undefined;
  readonly etcdCertFile: string | undefined;
  readonly etcdKeyFile: string | undefined;
}

/** Parsers of these settings. */
export const ETCD_FIELDS: Readonly<Record<string, Field>> = {
  etcd_user: text('a name of at most 256 characters', undefined, /^\s*\P{Cc}{1,256}\s*$/u),
  etcd_password: text('text of at most 1024 characters', undefined, /^(?!\s*\[secret\]\s*$)\P{Cc}{1,1024}$/u),
  etcd_ca_file: text('the path of a PEM file', undefined),
  etcd_cert_file: text('the path of a PEM file', undefined),
  etcd_key_file: text('the path of a PEM file', undefined),
};

/**
 * Explains what is wrong with a combination of settings that are each valid; undefined: nothing. `spell` writes a key
 * as the configuration does. Files are read when the node starts.
 */
export function etcdFault(
  settings: EtcdSettings & { readonly discoveryAddr: string },
  spell: (key: string) => string,
): string | undefined {
  const { etcdUser, etcdPassword, etcdCaFile, etcdCertFile, etcdKeyFile } = settings;
  const isPair = (one: unknown, other: unknown): boolean => (one === undefined) === (other === undefined);
  const both = (one: string, other: string): string =>
    `configuration keys "${spell(one)}" and "${spell(other)}": give both of them, or none`;
  if (!isPair(etcdUser, etcdPassword)) return both('etcd_user', 'etcd_password');
  if (!isPair(etcdCertFile, etcdKeyFile)) return both('etcd_cert_file', 'etcd_key_file');
  const address = parseDiscoveryAddress(settings.discoveryAddr);
  const hasFiles = etcdCaFile !== undefined || etcdCertFile !== undefined;
  if (!hasFiles || address?.kind !== 'etcd' || address.isTls) return undefined;
  const key = etcdCaFile === undefined ? 'etcd_cert_file' : 'etcd_ca_file';
  return `configuration key "${spell(key)}": ${spell('discovery_addr')} begins with etcd://, which is not encrypted; use etcds://, or leave the file out`;
}
