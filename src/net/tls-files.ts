import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Files } from '../base/environment/files.js';
import { TlsIdentity } from '../base/environment/tls-identity.js';
import { ConfigError } from '../base/errors.js';

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
}

/**
 * Reads the files at `paths` once; new certificates take effect with the next start. `wallMs` is the present time. Throws
 * {@link ConfigError}, which names the key of a file that cannot be read, is no certificate, is not valid now, or does not fit.
 */
export function readTlsIdentity(
  paths: TlsFiles,
  { files, wallMs }: { readonly files: Files; readonly wallMs: number },
): TlsIdentity {
  const cert = readText('tls_cert_file', paths.certFile, files);
  const key = readText('tls_key_file', paths.keyFile, files);
  const ca = readText('tls_ca_file', paths.caFile, files);
  const certificate = validCertificate('tls_cert_file', paths.certFile, cert, wallMs);
  validCertificate('tls_ca_file', paths.caFile, ca, wallMs);
  const fits = checked('tls_key_file', paths.keyFile, 'is no private key without a passphrase', () =>
    certificate.checkPrivateKey(createPrivateKey(key)),
  );
  if (!fits) throw fileError('tls_key_file', paths.keyFile, `does not belong to the certificate in ${paths.certFile}`);
  checked('tls_cert_file', paths.certFile, 'is refused by OpenSSL, with its key and authority', () =>
    createSecureContext({ cert, key, ca, minVersion: 'TLSv1.3' }),
  );
  return new TlsIdentity({ cert, key, ca });
}

function readText(key: string, path: string, files: Files): string {
  try {
    return files.readFileSync(path).toString();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw fileError(key, path, `cannot be read (${code}); it must be a PEM file that this process may read`, cause);
  }
}

/** Parses the first certificate of the text and checks that it is valid now. */
function validCertificate(key: string, path: string, text: string, wallMs: number): X509Certificate {
  const certificate = checked(key, path, 'has no certificate in PEM format', () => new X509Certificate(text));
  const { validFrom, validTo } = certificate;
  // Negated, so that a date which cannot be parsed (NaN) fails both checks.
  if (!(wallMs >= Date.parse(validFrom))) throw fileError(key, path, `is not valid before ${validFrom}`);
  if (!(wallMs <= Date.parse(validTo))) throw fileError(key, path, `has expired on ${validTo}`);
  return certificate;
}

function checked<T>(key: string, path: string, problem: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw fileError(key, path, problem, cause);
  }
}

function fileError(key: string, path: string, problem: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "${key}": ${path} ${problem}`, cause === undefined ? {} : { cause });
}
