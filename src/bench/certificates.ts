import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './find-program.js';

/** A certificate for the nodes of a benchmark, by an authority of its own. Its files are only there for the run. */
export class BenchCertificate {
  readonly #folder: string;

  /** As text: why there is none. */
  static async make(): Promise<BenchCertificate | string> {
    const openssl = await findProgram('openssl');
    if (openssl === undefined) return 'openssl, which makes the certificates, is not installed';
    const certificate = new BenchCertificate(mkdtempSync(join(tmpdir(), 'meshcache-bench-tls-')));
    try {
      certificate.#make(openssl);
      return certificate;
    } catch (error) {
      certificate.remove();
      return `openssl failed: ${(error as Error).message}`;
    }
  }

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Configuration keys with the files. */
  get config(): Readonly<Record<string, string>> {
    return {
      tls_cert_file: this.#path('node.pem'),
      tls_key_file: this.#path('node.key'),
      tls_ca_file: this.#path('ca.pem'),
    };
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #make(openssl: string): void {
    const run = (...args: string[]): Buffer => execFileSync(openssl, args, { stdio: 'pipe' });
    const newKey = (name: string): string[] => {
      const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
      return [...curve, '-keyout', this.#path(`${name}.key`), '-subj', `/CN=meshcache bench ${name}`];
    };
    run('req', '-x509', ...newKey('ca'), '-out', this.#path('ca.pem'), '-days', '2');
    run('req', ...newKey('node'), '-out', this.#path('node.csr'));
    const authority = ['-CA', this.#path('ca.pem'), '-CAkey', this.#path('ca.key'), '-CAcreateserial'];
    run('x509', '-req', '-in', this.#path('node.csr'), ...authority, '-days', '2', '-out', this.#path('node.pem'));
  }

  #path(name: string): string {
    return join(this.#folder, name);
  }
}
