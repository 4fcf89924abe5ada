import { isUtf8 } from 'node:buffer';
import { ClusterSecrets } from '../../base/environment/cluster-secrets.js';
import type { Files } from '../../base/environment/files.js';
import { ConfigError } from '../../base/errors.js';
import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../../base/limits.js';

/** Permission bit that lets users outside the owner's group read the file. */
const READABLE_BY_OTHERS = 0o004;

/** Reads the secrets from a file of one or two lines. Throws {@link ConfigError}, which names the key and the path, never the content. */
export function readSecretsFile(
  path: string,
  files: Files,
): { readonly secrets: ClusterSecrets; readonly isReadableByOthers: boolean } {
  const subject = subjectOf(path);
  let bytes: Buffer;
  let mode: number;
  try {
    bytes = files.readFileSync(path);
    mode = files.statusSync(path).mode;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new ConfigError(`${subject} cannot be read (${code}); it must be a file that this process may read`, {
      cause,
    });
  }
  return { secrets: secretsIn(path, bytes), isReadableByOthers: (mode & READABLE_BY_OTHERS) !== 0 };
}

/** The secrets in the bytes of the file at `path`. Throws {@link ConfigError} as {@link readSecretsFile} does. */
export function secretsIn(path: string, bytes: Buffer): ClusterSecrets {
  const subject = subjectOf(path);
  // Replacement characters would turn different bytes into the same secret. A file that a loss of power has left full of zeros is a secret that everybody knows.
  if (!isUtf8(bytes) || bytes.includes(0))
    throw new ConfigError(`${subject} is no text; allowed is UTF-8, such as the output of openssl rand -hex 32`);
  const lines = bytes
    .toString()
    .split('\n')
    .filter((line) => line.trim() !== '');
  const secrets = ClusterSecrets.of(lines);
  if (secrets === undefined) {
    const allowed = `1 or ${SECRETS_MAX_COUNT} lines of 1 to ${SECRET_MAX_CHARACTERS} characters`;
    throw new ConfigError(`${subject} has ${lines.length} lines that are not empty, allowed are ${allowed}`);
  }
  return secrets;
}

function subjectOf(path: string): string {
  return `configuration key "cluster_secret_file": ${path}`;
}
