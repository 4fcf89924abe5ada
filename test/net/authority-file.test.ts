import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { readAuthorityFile } from '../../src/net/credentials/tls-files.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { CERT } from '../fuzz/tls-seeds.js';

test('authority file: one without a certificate is refused', (t) => {
  // Cause: with an empty file, the client trusted all authorities that Node comes with, and the configuration said one.
  const folder = temporaryFolder(t);
  const read = (text: string) => {
    const path = join(folder, 'ca.pem');
    writeFileSync(path, text);
    return readAuthorityFile('etcd_ca_file', path, systemFiles);
  };
  t.is(read(CERT), CERT);
  for (const text of ['', '\n', 'authority', CERT.slice(0, 200)]) {
    t.throws(
      () => read(text),
      { code: 'ERR_CONFIG', message: /"etcd_ca_file": .*ca\.pem has no certificate in PEM/ },
      text,
    );
  }
  t.throws(() => readAuthorityFile('object_store_ca_file', folder, systemFiles), {
    code: 'ERR_CONFIG',
    message: /"object_store_ca_file": .* cannot be read \(EISDIR\)/,
  });
});
