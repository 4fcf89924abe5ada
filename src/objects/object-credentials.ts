import type { Environment } from '../base/environment/environment.js';
import { ConfigError } from '../base/errors.js';
import { OBJECT_CREDENTIALS_MAX_AGE_MS } from '../base/limits.js';
import type { ObjectStoreSettings } from '../base/settings/object-store-settings.js';

/** An access key of an object store. Its fields are secrets, and must not be shown anywhere. */
interface ObjectCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** Longest credentials file. */
const FILE_MAX_BYTES = 2 ** 20;
const DEFAULT_PROFILE = 'default';
const DEFAULT_REGION = 'us-east-1';

/**
 * The access key of a node: from its settings, else from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, else from the
 * shared credentials file. The file is read again after OBJECT_CREDENTIALS_MAX_AGE_MS, so that a key can be replaced
 * while the node runs; a file without a key changes nothing.
 */
export class CredentialSource {
  readonly #settings: ObjectStoreSettings;
  readonly #env: Environment;
  #fromFile: { readonly credentials: ObjectCredentials | undefined; readonly readMs: number } | undefined;

  constructor(settings: ObjectStoreSettings, env: Environment) {
    this.#settings = settings;
    this.#env = env;
  }

  /** The present access key; undefined: there is none. */
  async current(): Promise<ObjectCredentials | undefined> {
    const given = this.#given();
    if (given !== undefined) return given;
    const { clock } = this.#env;
    const known = this.#fromFile;
    if (known !== undefined && clock.nowMs() - known.readMs < OBJECT_CREDENTIALS_MAX_AGE_MS) return known.credentials;
    // A file that is being written may have no complete key for a moment.
    const credentials = (await this.#readFile()) ?? known?.credentials;
    this.#fromFile = { credentials, readMs: clock.nowMs() };
    return credentials;
  }

  /** Like {@link current}, but throws `ConfigError`, with advice, if there is no access key. */
  async required(): Promise<ObjectCredentials> {
    const credentials = await this.current();
    if (credentials !== undefined) return credentials;
    throw new ConfigError(
      `configuration key "object_store": there is no access key; set object_store_access_key_id and object_store_secret_access_key, ` +
        `or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or write the profile "${this.#profile}" in ${this.#path ?? 'a shared credentials file'}`,
    );
  }

  #given(): ObjectCredentials | undefined {
    const { objectStoreAccessKeyId: id, objectStoreSecretAccessKey: secret, objectStoreSessionToken } = this.#settings;
    if (id !== undefined && secret !== undefined) {
      return { accessKeyId: id, secretAccessKey: secret, sessionToken: objectStoreSessionToken };
    }
    const accessKeyId = this.#variable('AWS_ACCESS_KEY_ID');
    const secretAccessKey = this.#variable('AWS_SECRET_ACCESS_KEY');
    if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
    return { accessKeyId, secretAccessKey, sessionToken: this.#variable('AWS_SESSION_TOKEN') };
  }

  get #profile(): string {
    return this.#variable('AWS_PROFILE') ?? DEFAULT_PROFILE;
  }

  get #path(): string | undefined {
    const { homePath } = this.#env.host;
    return this.#variable('AWS_SHARED_CREDENTIALS_FILE') ?? (homePath ? `${homePath}/.aws/credentials` : undefined);
  }

  async #readFile(): Promise<ObjectCredentials | undefined> {
    const path = this.#path;
    if (path === undefined) return undefined;
    try {
      const { files } = this.#env;
      if ((await files.status(path)).sizeBytes > FILE_MAX_BYTES) return undefined;
      return credentialsOf((await files.readFile(path)).toString(), this.#profile);
    } catch {
      return undefined;
    }
  }

  #variable(name: string): string | undefined {
    return this.#env.host.variable?.(name)?.trim() || undefined;
  }
}

/** The region of the settings, else of the environment, else the one that stores without regions expect. */
export function regionOf({ objectStoreRegion }: ObjectStoreSettings, { host }: Environment): string {
  const given = objectStoreRegion ?? host.variable?.('AWS_REGION') ?? host.variable?.('AWS_DEFAULT_REGION');
  return given?.trim() || DEFAULT_REGION;
}

/** The access key of a profile in a shared credentials file; undefined: the profile has none. */
export function credentialsOf(text: string, profile: string): ObjectCredentials | undefined {
  const values = new Map<string, string>();
  let isWanted = false;
  for (const line of text.split(/\r?\n/)) {
    const [, section] = /^\s*\[\s*(.*?)\s*\]\s*$/.exec(line) ?? [];
    if (section !== undefined) isWanted = section === profile;
    const [, name = '', value = ''] = /^\s*([\w.-]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (isWanted && section === undefined && value !== '') values.set(name.toLowerCase(), value);
  }
  const accessKeyId = values.get('aws_access_key_id');
  const secretAccessKey = values.get('aws_secret_access_key');
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  return { accessKeyId, secretAccessKey, sessionToken: values.get('aws_session_token') };
}
