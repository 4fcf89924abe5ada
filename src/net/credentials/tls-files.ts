import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { TlsIdentity, type TlsTexts } from '../../base/environment/credentials.js';
import type { Files } from '../../base/environment/files.js';
import { fileFault, readNamedFile, readNamedFileAgain } from '../../base/settings/named-file.js';

const CERTIFICATES = /-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs;

/** Paths of PEM files. */
export interface TlsFiles {
  /**
   * Prefix of the configuration keys of these files. Default: `tls_`, for the files that nodes use among themselves.
   */
  readonly keyPrefix?: string;
  readonly certFile: string;
  readonly keyFile: string;
  /** Authorities of the other side; undefined if the other side need not present a certificate. */
  readonly caFile?: string | undefined;
  readonly crlFile?: string | undefined;
}

/**
 * Reads the files at `paths`. `wallMs` is the current time; `names` are stored in the identity. Throws {@link
 * ConfigError}, which names the key of a file that cannot be read, is not a certificate, is not valid now, or does not
 * match the others.
 */
export function readTlsIdentity(
  paths: TlsFiles,
  { files, wallMs, names = [] }: { readonly files: Files; readonly wallMs: number; readonly names?: readonly string[] },
): TlsIdentity {
  const keys = keysOf(paths);
  const optional = (key: string, path: string | undefined) =>
    path === undefined ? undefined : readText(key, path, files);
  const texts = {
    cert: readText(keys.cert, paths.certFile, files),
    key: readText(keys.key, paths.keyFile, files),
    ca: optional(keys.ca, paths.caFile),
    crl: optional(keys.crl, paths.crlFile),
    names,
  };
  checkTlsTexts(paths, texts, wallMs);
  return new TlsIdentity(texts);
}

/** Reads the files at `paths` again without checking their contents. Rejects with {@link ConfigError}. */
export async function readTlsTexts(paths: TlsFiles, files: Files): Promise<Omit<TlsTexts, 'names'>> {
  const keys = keysOf(paths);
  const again = async (key: string, path: string) =>
    (await readNamedFileAgain(key, path, files, 'PEM file')).toString();
  const optional = (key: string, path: string | undefined) => (path === undefined ? undefined : again(key, path));
  const [cert, key, ca, crl] = await Promise.all([
    again(keys.cert, paths.certFile),
    again(keys.key, paths.keyFile),
    optional(keys.ca, paths.caFile),
    optional(keys.crl, paths.crlFile),
  ]);
  return { cert, key, ca, crl };
}

/**
 * Throws {@link ConfigError}, as {@link readTlsIdentity} does, unless these texts from the files at `paths` can be
 * used.
 */
export function checkTlsTexts(paths: TlsFiles, { cert, key, ca, crl }: TlsTexts, wallMs: number): void {
  const keys = keysOf(paths);
  const certificate = validCertificate(keys.cert, paths.certFile, cert, wallMs);
  for (const each of authoritiesIn(ca)) validCertificate(keys.ca, paths.caFile ?? '', each, wallMs);
  const fits = checked(keys.key, paths.keyFile, 'is no private key without a passphrase', () =>
    certificate.checkPrivateKey(createPrivateKey(key)),
  );
  if (!fits) throw fileFault(keys.key, paths.keyFile, `does not belong to the certificate in ${paths.certFile}`);
  checked(keys.cert, paths.certFile, 'is refused by OpenSSL, with its key and authority', () =>
    createSecureContext({ cert, key, ...(ca === undefined ? {} : { ca }) }),
  );
  if (crl === undefined) return;
  checked(keys.crl, paths.crlFile ?? '', 'has no list of revoked certificates in PEM format', () =>
    createSecureContext({ ...(ca === undefined ? {} : { ca }), crl }),
  );
}

/** Returns when the first of the certificates in these texts expires, in milliseconds of the wall clock. */
export function expiryMsOf({ cert, ca }: TlsTexts): number {
  const ends = [...certificatesIn(cert), ...authoritiesIn(ca)].map((text) => new X509Certificate(text).validTo);
  return Math.min(...ends.map((end) => Date.parse(end)));
}

/** Returns the configuration keys of the files. */
function keysOf({ keyPrefix = 'tls_' }: TlsFiles) {
  const [cert, key, ca, crl] = ['cert', 'key', 'ca', 'crl'].map((each) => `${keyPrefix}${each}_file`) as [
    string,
    string,
    string,
    string,
  ];
  return { cert, key, ca, crl };
}

function authoritiesIn(ca: string | undefined): readonly string[] {
  return ca === undefined ? [] : certificatesIn(ca);
}

/**
 * Returns the certificates of a PEM text, one by one. A text without any is returned whole, so that the caller can
 * report what is wrong with it.
 */
function certificatesIn(text: string): readonly string[] {
  return text.match(CERTIFICATES) ?? [text];
}

function readText(key: string, path: string, files: Files): string {
  return readNamedFile(key, path, files, 'PEM file').toString();
}

/** Parses the first certificate of the text and checks that it is valid now. */
function validCertificate(key: string, path: string, text: string, wallMs: number): X509Certificate {
  const certificate = checked(key, path, 'has no certificate in PEM format', () => new X509Certificate(text));
  const { validFrom, validTo } = certificate;
  // Negated, so that a date which cannot be parsed (NaN) fails both checks.
  if (!(wallMs >= Date.parse(validFrom))) throw fileFault(key, path, `is not valid before ${validFrom}`);
  if (!(wallMs <= Date.parse(validTo))) throw fileFault(key, path, `has expired on ${validTo}`);
  return certificate;
}

function checked<T>(key: string, path: string, problem: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw fileFault(key, path, problem, cause);
  }
}

/**
 * Reads the certificates of authorities from the PEM file at `path`, the value of configuration key `key`. Throws
 * `ConfigError`, also for a file without a certificate: with an empty one, Node would trust its built-in authorities.
 */
export function readAuthorityFile(key: string, path: string, files: Files): string {
  const text = readNamedFile(key, path, files, 'PEM file').toString();
  try {
    new X509Certificate(text);
  } catch (cause) {
    throw fileFault(key, path, 'has no certificate in PEM format; it must have that of the authority', cause);
  }
  return text;
}
