import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Authority as PlainAuthority } from '../../src/bench/auth/certificates.js';

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
}
