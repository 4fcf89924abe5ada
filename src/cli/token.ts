import { Command } from 'commander';
import { type CommandContext, printResult } from '../command/context.js';
import { jsonOption } from '../command/options.js';
import { digestOf } from '../net/users/users.js';
import { systemRandom } from '../system/system-random.js';

const USER_TOKEN_BYTES = 32;

const HELP = `
The token belongs into a file that only its user can read, which clients find by MESHCACHE_TOKEN_FILE in their environment. Its
digest belongs into users_file of the nodes, under token_sha256: it does not tell the token. Nothing is stored here.

Examples:
  meshcache token
  meshcache token --json`;

/** `meshcache token`: makes up a token for a user of nodes. */
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
