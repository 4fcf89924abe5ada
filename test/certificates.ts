import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Why there are no certificates here; empty: there are. */
export const noCertificates =
  spawnSync('openssl', ['version']).status === 0 ? '' : 'no openssl here to make certificates';

export interface CertificateFiles {
  readonly tlsCertFile: string;
  readonly tlsKeyFile: string;
  readonly tlsCaFile: string;
}

/** A certificate authority of its own, in a folder of its own. */
export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), 'meshcache-ca-'));
  readonly #caFile = join(this.#folder, 'ca.pem');
  readonly #caKeyFile = join(this.#folder, 'ca.key');

  constructor() {
    const days = ['-days', '30', '-subj', '/CN=test authority'];
    this.#openssl('req', '-x509', ...this.#newKey(this.#caKeyFile), '-out', this.#caFile, ...days);
  }

  /** A node's files. `validDays` is negative: it has expired. */
  issue(name: string, validDays = 30): CertificateFiles {
    const [key, request, cert] = ['key', 'csr', 'pem'].map((end) => join(this.#folder, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    this.#openssl('req', ...this.#newKey(key), '-out', request, '-subj', `/CN=${name}`);
    const by = ['-CA', this.#caFile, '-CAkey', this.#caKeyFile, '-CAcreateserial'];
    this.#openssl('x509', '-req', '-in', request, ...by, '-days', String(validDays), '-out', cert);
    return { tlsCertFile: cert, tlsKeyFile: key, tlsCaFile: this.#caFile };
  }

  /** A file of this folder with this content, which only its owner may read. */
  write(name: string, text: string): string {
    const path = join(this.#folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #newKey(path: string): string[] {
    return ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', path];
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'pipe' });
  }
}
