import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Authority as PlainAuthority } from '../../src/bench/auth/certificates.js';

export type { CertificateFiles } from '../../src/bench/auth/certificates.js';

/** Why there are no certificates here; empty: there are. */
export const noCertificates =
  spawnSync('openssl', ['version']).status === 0 ? '' : 'no openssl here to make certificates';

export class Authority extends PlainAuthority {
  /** A file of this folder with this content, which only its owner may read. */
  write(name: string, text: string): string {
    const path = join(this.folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }
}
