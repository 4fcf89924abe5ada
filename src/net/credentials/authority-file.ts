import { X509Certificate } from 'node:crypto';
import type { Files } from '../../base/environment/files.js';
import { fileFault, readNamedFile } from '../../base/settings/named-file.js';

/**
 * Reads the certificates of authorities from the PEM file at `path`, the value of configuration key `key`. Throws
 * `ConfigError`, also for a file without a certificate: with an empty one, Node would trust the authorities that it
 * comes with.
 */
export function readAuthorityFile(
  key: string,
  path: string,
  files: Pick<Files, 'readFileSync' | 'statusSync'>,
): string {
  const text = readNamedFile(key, path, files, 'PEM file').toString();
  try {
    new X509Certificate(text);
  } catch (cause) {
    throw fileFault(key, path, 'has no certificate in PEM format; it must have that of the authority', cause);
  }
  return text;
}
