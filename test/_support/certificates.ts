import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CertificateFiles, Authority as PlainAuthority } from '../../src/bench/auth/certificates.js';

export type { CertificateFiles } from '../../src/bench/auth/certificates.js';

/** Reason why certificates cannot be made here; empty if they can. */
export const noCertificates =
  spawnSync('openssl', ['version']).status === 0 ? '' : 'no openssl here to make certificates';

export class Authority extends PlainAuthority {
  /** Writes a file of this folder that only its owner may read. */
  write(name: string, text: string): string {
    const path = join(this.folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  /** The path of a file with the certificates of this authority and of another one. */
  both(other: Authority): string {
    const texts = [this, other].map(({ folder }) => readFileSync(join(folder, 'ca.pem'), 'utf8'));
    return this.write('both.pem', texts.join(''));
  }

  /** The path of a list of these certificates as revoked ones. */
  revoked(...certificates: readonly CertificateFiles[]): string {
    const path = join(this.folder, 'revoked.pem');
    const config = this.write(
      'openssl.cnf',
      `[ca]\ndefault_ca=own\n[own]\ndatabase=${this.write('index.txt', '')}\ndefault_md=sha256\ndefault_crl_days=30\n`,
    );
    const by = ['-config', config, '-keyfile', join(this.folder, 'ca.key'), '-cert', join(this.folder, 'ca.pem')];
    const openssl = (...args: readonly string[]) => execFileSync('openssl', ['ca', ...by, ...args], { stdio: 'pipe' });
    for (const { tlsCertFile } of certificates) openssl('-revoke', tlsCertFile);
    openssl('-gencrl', '-out', path);
    return path;
  }
}
