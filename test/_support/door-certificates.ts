import { readFileSync } from 'node:fs';
import type { SecureContextOptions } from 'node:tls';
import type { ExecutionContext } from 'ava';
import type { TlsDoor } from '../../src/base/settings/door-settings.js';
import { Authority, type CertificateFiles } from './certificates.js';

export const HOST = '127.0.0.1';

/** An authority whose files go with the test. */
export function authorityOf(t: ExecutionContext, name?: string): Authority {
  const authority = new Authority(name);
  t.teardown(() => authority.remove());
  return authority;
}

/** The configuration of a door's certificate, and of the authority of its clients. */
export function doorFiles(
  door: TlsDoor,
  { tlsCertFile, tlsKeyFile }: CertificateFiles,
  caFile?: string,
): Record<string, unknown> {
  const ca = caFile === undefined ? {} : { [`${door}_tls_ca_file`]: caFile };
  return { [`${door}_tls_cert_file`]: tlsCertFile, [`${door}_tls_key_file`]: tlsKeyFile, ...ca };
}

export const textOf = (path: string): string => readFileSync(path, 'utf8');

/** What a client trusts and shows. */
export function clientOf(files: CertificateFiles, shows = true): SecureContextOptions {
  const own = shows ? { cert: textOf(files.tlsCertFile), key: textOf(files.tlsKeyFile) } : {};
  return { ca: textOf(files.tlsCaFile), ...own };
}
