import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { TemporaryFolder } from '../../processes/at-exit.js';
import { findProgram } from '../../processes/programs.js';

/** Paths of the files for a node's TLS configuration. */
export interface CertificateFiles {
  readonly tlsCertFile: string;
  readonly tlsKeyFile: string;
  readonly tlsCaFile: string;
}

/** A certificate authority in a folder of its own, made by openssl. The caller must call `remove`. */
export class Authority {
  readonly #temporary = new TemporaryFolder('meshcache-ca-');
  readonly folder = this.#temporary.path;
  readonly #caFile = join(this.folder, 'ca.pem');
  readonly #caKeyFile = join(this.folder, 'ca.key');

  /** Creates the authority's key and certificate. Throws if openssl fails, and leaves nothing behind. */
  constructor(name = 'test authority') {
    try {
      const days = ['-days', '30', '-subj', `/CN=${name}`];
      this.#openssl('req', '-x509', ...this.#newKey(this.#caKeyFile), '-out', this.#caFile, ...days);
    } catch (error) {
      this.remove();
      throw error;
    }
  }

  /**
   * Issues a key and a certificate. If `validDays` is negative, the certificate has already expired. `address` is the
   * IP address that it is valid for.
   */
  issue(name: string, validDays = 30, address?: string): CertificateFiles {
    const [key, request, cert] = ['key', 'csr', 'pem'].map((end) => join(this.folder, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    this.#openssl('req', ...this.#newKey(key), '-out', request, '-subj', `/CN=${name}`);
    const by = ['-CA', this.#caFile, '-CAkey', this.#caKeyFile, '-CAcreateserial'];
    const extension = join(this.folder, `${name}.ext`);
    if (address !== undefined) writeFileSync(extension, `subjectAltName=IP:${address}\n`);
    const more = address === undefined ? [] : ['-extfile', extension];
    this.#openssl('x509', '-req', '-in', request, ...by, '-days', String(validDays), ...more, '-out', cert);
    return { tlsCertFile: cert, tlsKeyFile: key, tlsCaFile: this.#caFile };
  }

  remove(): void {
    this.#temporary.remove();
  }

  #newKey(path: string): string[] {
    return ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', path];
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'pipe' });
  }
}

/** A certificate for the nodes of a benchmark. Its files exist only during the run. */
export class BenchCertificate {
  readonly #authority: Authority;
  /** Configuration keys with the paths of the files. */
  readonly config: Readonly<Record<string, string>>;

  /** Makes the certificate, or returns the reason as text if it cannot be made. */
  static async make(): Promise<BenchCertificate | string> {
    if ((await findProgram('openssl')) === undefined) return 'openssl, which makes the certificates, is not installed';
    try {
      return new BenchCertificate(new Authority());
    } catch (error) {
      return `openssl failed: ${(error as Error).message}`;
    }
  }

  private constructor(authority: Authority) {
    this.#authority = authority;
    try {
      const { tlsCertFile, tlsKeyFile, tlsCaFile } = authority.issue('node');
      this.config = { tls_cert_file: tlsCertFile, tls_key_file: tlsKeyFile, tls_ca_file: tlsCaFile };
    } catch (error) {
      authority.remove();
      throw error;
    }
  }

  remove(): void {
    this.#authority.remove();
  }
}
