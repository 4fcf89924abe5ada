import { X509Certificate } from 'node:crypto';
import type { Files } from '../../base/environment/files.js';
import { ConfigError } from '../../base/errors.js';

/**
 * Reads the certificates of authorities from the PEM file at `path`, the value of configuration key `key`. Throws {@link ConfigError}, also for a file
 * without a certificate: with an empty one, Node would trust the authorities that it comes with.
 */
export function readAuthorityFile(key: string, path: string, files: Pick<Files, 'readFileSync'>): string {
  const subject = `configuration key "${key}": ${path}`;
  let text: string;
  try {
    text = files.readFileSync(path).toString();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new ConfigError(`${subject} cannot be read (${code}); it must be a PEM file that this process may read`, {
      cause,
    });
  }
  try {
    new X509Certificate(text);
  } catch (cause) {
    throw new ConfigError(`${subject} has no certificate in PEM format; it must have that of the authority`, { cause });
  }
  return text;
}
