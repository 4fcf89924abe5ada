import type { Files } from '../base/environment/files.js';
import { ArgumentError } from '../base/errors.js';
import { TOKEN_MAX_CHARACTERS } from '../base/limits.js';
import { shown } from '../base/shown.js';

/** Matches visible characters only, as `meshcache token` prints them. */
const TOKEN = new RegExp(`^[\\x21-\\x7e]{1,${TOKEN_MAX_CHARACTERS}}$`);

/** The token that tells a node which user the client is, or the file that contains it. */
export interface TokenSource {
  readonly token?: string | undefined;
  readonly tokenFile?: string | undefined;
}

/** Throws `ArgumentError` for a token that no user can have. The message does not show the token. */
export function checkTokenSource(method: string, { token, tokenFile }: TokenSource): void {
  if (token !== undefined && (typeof token !== 'string' || !TOKEN.test(token))) {
    throw new ArgumentError(`${method}: token must be 1 to ${TOKEN_MAX_CHARACTERS} visible characters without spaces`);
  }
  if (tokenFile !== undefined && (typeof tokenFile !== 'string' || tokenFile === '')) {
    throw new ArgumentError(`${method}: tokenFile must be the path of a file, got ${shown(tokenFile)}`);
  }
}

/** Returns the token in the bytes of a file; undefined if they contain none. */
export function tokenIn(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString().trim();
  return TOKEN.test(text) ? text : undefined;
}

/**
 * Returns the token to present now; undefined if none is configured. The file is read each time, so that the token can
 * change while the program runs. Throws an `Error` for a file without a token.
 */
export function tokenFrom({ token, tokenFile }: TokenSource, files: Files): string | undefined {
  if (token !== undefined || tokenFile === undefined) return token;
  const found = tokenIn(files.readFileSync(tokenFile));
  if (found !== undefined) return found;
  throw new Error(`the token file ${tokenFile} has no token; it must be one line, as \`meshcache token\` prints it`);
}
