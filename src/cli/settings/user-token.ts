import { Option } from 'commander';
import { TOKEN_MAX_CHARACTERS } from '../../base/limits.js';
import { tokenIn } from '../../client/client-token.js';
import { CommandFailure } from '../../command/failure.js';
import { systemFiles } from '../../system/files/system-files.js';

/** The option `--token-file`. */
export function tokenOption(): Option {
  return new Option(
    '--token-file <file>',
    'file with the token of a user of the node (users_file); also MESHCACHE_TOKEN_FILE in the environment',
  ).env('MESHCACHE_TOKEN_FILE');
}

/** The token in the file at `path`; undefined without a path. Throws {@link CommandFailure}, which never shows it. */
export async function readToken(path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  let bytes: Buffer;
  try {
    bytes = await systemFiles.readFile(path);
  } catch (cause) {
    const { message } = cause as Error;
    throw new CommandFailure(`the token cannot be read: ${message}`, undefined, { cause });
  }
  const token = tokenIn(bytes);
  if (token !== undefined) return token;
  throw new CommandFailure(
    `${path} has no token; allowed is one line of 1 to ${TOKEN_MAX_CHARACTERS} visible characters without spaces`,
  );
}
