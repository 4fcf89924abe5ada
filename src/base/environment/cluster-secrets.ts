import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../limits.js';
import { Renewable } from './renewable.js';

/** The values that {@link ClusterSecrets.of} accepts, in words for messages. */
export const CLUSTER_SECRET_ALLOWED = `text of 1 to ${SECRET_MAX_CHARACTERS} characters, or a list of 1 or ${SECRETS_MAX_COUNT} of them`;

/**
 * The text that is shown in place of a secret. It is refused as a secret, so that a copied configuration dump cannot
 * become one.
 */
export const SHOWN = '[secret]';

/**
 * The secrets of a cluster: one, or two while it is being changed. A node presents the first and accepts both.
 * Printing, inspecting or serialising this object never shows them.
 */
export class ClusterSecrets extends Renewable<readonly string[]> {
  /**
   * Makes one of one or two texts that are not empty; undefined for anything else. White space around a secret is
   * ignored.
   */
  static of(secrets: readonly unknown[]): ClusterSecrets | undefined {
    const texts = secrets.map((secret) => (typeof secret === 'string' ? secret.trim() : ''));
    const isAllowed = texts.every((text) => text.length > 0 && text.length <= SECRET_MAX_CHARACTERS && text !== SHOWN);
    if (!isAllowed || texts.length < 1 || texts.length > SECRETS_MAX_COUNT) return undefined;
    return new ClusterSecrets([...new Set(texts)]);
  }

  private constructor(secrets: readonly string[]) {
    super(secrets, SHOWN);
  }

  /** Length of the shortest secret. A short one can be guessed by an attacker who records a handshake. */
  get shortestCharacters(): number {
    return Math.min(...this.reveal().map((secret) => secret.length));
  }
}
