import { Command, Option } from 'commander';
import { TOKEN_MAX_CHARACTERS } from '../../base/limits.js';
import { tokenIn } from '../../client/client-token.js';
import { type CommandContext, CommandFailure, printResult } from '../../command/context.js';
import { jsonOption } from '../../command/options.js';
import { digestOf } from '../../net/users.js';
import { systemFiles } from '../../system/files/system-files.js';
import { systemRandom } from '../../system/system-random.js';

const USER_TOKEN_BYTES = 32;

const HELP = `
The token belongs into a file that only its user can read, which clients find by MESHCACHE_TOKEN_FILE in their environment. Its
digest belongs into users_file of the nodes, under token_sha256: it does not tell the token. Nothing is stored here.

Examples:
  meshcache token
  meshcache token --json`;

/** `meshcache token`: generates a token for a user of nodes. */
export function tokenCommand(context: CommandContext): Command {
  return new Command('token')
    .description('print a new token for a user of nodes, and its digest for users_file')
    .addOption(jsonOption())
    .addHelpText('after', HELP)
    .action((options: { readonly json: boolean }) => {
      const token = Buffer.from(systemRandom.bytes(USER_TOKEN_BYTES)).toString('base64url');
      const made = { token, token_sha256: digestOf(token) };
      printResult(context, made, {
        json: options.json,
        asText: () => `token         ${made.token}\ntoken_sha256  ${made.token_sha256}`,
      });
    });
}

/** The option `--token-file`. */
export function tokenOption(): Option {
  return new Option(
    '--token-file <file>',
    'file with the token of a user of the node (users_file); also MESHCACHE_TOKEN_FILE in the environment',
  ).env('MESHCACHE_TOKEN_FILE');
}

/** The token in the file at `path`; undefined without a path. Throws {@link CommandFailure} without the token in it. */
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
