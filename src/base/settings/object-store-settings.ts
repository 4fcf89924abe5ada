import type { Endpoint } from '../environment/network.js';
import { DISK_MAX_BYTES } from '../limits.js';
import { type Field, size, text } from './fields.js';

/** A bucket of an object store, and the prefix of the cluster's objects in it. */
export interface ObjectStorePlace {
  readonly bucket: string;
  /** Prefix of the names of all objects: empty, or ending with a slash. */
  readonly prefix: string;
}

/** A server that speaks the S3 protocol. */
interface ObjectStoreServer {
  readonly endpoint: Endpoint;
  readonly isTls: boolean;
}

const PLACE_ALLOWED =
  's3://bucket or s3://bucket/prefix, the prefix of letters, digits and . _ - /, for example "s3://kv-pages/llama"';
const SERVER_ALLOWED = 'http://host:port or https://host:port, for example "https://minio.example.org:9000"';
const PREFIX_MAX_CHARACTERS = 256;
/** Valid bucket names, by the rules of S3. */
const BUCKET = /^(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const PREFIX = /^[A-Za-z0-9._-]+(\/[A-Za-z0-9._-]+)*$/;

/** Parses the text; undefined if it is not allowed. */
export function parseObjectStorePlace(text: string): ObjectStorePlace | undefined {
  const [, bucket = '', rest = ''] = /^s3:\/\/([^/]*)(?:\/(.*))?$/i.exec(text.trim()) ?? [];
  const prefix = rest.replace(/\/$/, '');
  if (!BUCKET.test(bucket) || bucket.includes('..')) return undefined;
  if (prefix === '') return rest === '' || rest === '/' ? { bucket, prefix: '' } : undefined;
  const isPlain = prefix.length <= PREFIX_MAX_CHARACTERS && PREFIX.test(prefix) && !/(^|\/)\.{1,2}(\/|$)/.test(prefix);
  return isPlain ? { bucket, prefix: `${prefix}/` } : undefined;
}

/** Parses the text; undefined if it is not allowed. */
export function parseObjectStoreServer(text: string): ObjectStoreServer | undefined {
  const [, scheme = '', host = '', port] =
    /^(https?):\/\/(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?\/?$/i.exec(text.trim()) ?? [];
  if (host === '') return undefined;
  const isTls = scheme.toLowerCase() === 'https';
  const number = port === undefined ? (isTls ? 443 : 80) : Number(port);
  if (number < 1 || number > 65535) return undefined;
  return { endpoint: { host: host.replace(/^\[|\]$/g, ''), port: number }, isTls };
}

/** The field `object_store`. */
function objectStorePlace(): Field {
  return {
    parse: (v) => (typeof v === 'string' && parseObjectStorePlace(v) !== undefined ? v.trim() : undefined),
    allowed: PLACE_ALLOWED,
    // The text may contain credentials, which must not be repeated.
    fault: (v) =>
      typeof v === 'string' && /@/.test(v)
        ? 'got an address with a user or a password, which logs would show; set object_store_access_key_id and object_store_secret_access_key instead'
        : undefined,
    byDefault: undefined,
  };
}

/** The field `object_store_endpoint`. */
function objectStoreServer(): Field {
  return {
    parse: (v) => (typeof v === 'string' && parseObjectStoreServer(v) !== undefined ? v.trim() : undefined),
    allowed: SERVER_ALLOWED,
    fault: (v) =>
      typeof v === 'string' && /@/.test(v)
        ? 'got an address with a user or a password, which logs would show; set object_store_access_key_id and object_store_secret_access_key instead'
        : undefined,
    byDefault: undefined,
  };
}

/** The settings of an object store. */
export interface ObjectStoreSettings {
  /** `s3://bucket/prefix` of the object store that keeps computed pages; undefined: none. */
  readonly objectStore: string | undefined;
  /** `https://host:port` of a store other than that of AWS. */
  readonly objectStoreEndpoint: string | undefined;
  /** Region; default: that of the environment, else `us-east-1`. */
  readonly objectStoreRegion: string | undefined;
  /** Credentials; default: those of the environment, or of the shared credentials file. */
  readonly objectStoreAccessKeyId: string | undefined;
  readonly objectStoreSecretAccessKey: string | undefined;
  readonly objectStoreSessionToken: string | undefined;
  /** PEM file of the authority that has signed the store's certificate; default: those that the system trusts. */
  readonly objectStoreCaFile: string | undefined;
  /** Bytes per second that a node sends to the object store, on average. */
  readonly objectStoreWriteRate: number;
}

/** Visible characters, but not the text that a configuration shows in place of a secret. */
const CREDENTIAL = /^\s*(?!\[secret\]\s*$)[\x21-\x7e]{1,4096}\s*$/;

/** Parsers of these settings. */
export const OBJECT_STORE_FIELDS: Readonly<Record<string, Field>> = {
  object_store: objectStorePlace(),
  object_store_endpoint: objectStoreServer(),
  object_store_region: text(
    'the name of a region, for example "eu-central-1"',
    undefined,
    /^\s*[A-Za-z0-9-]{1,64}\s*$/,
  ),
  object_store_access_key_id: text('the id of an access key', undefined, CREDENTIAL),
  object_store_secret_access_key: text('the secret of an access key', undefined, CREDENTIAL),
  object_store_session_token: text('the token of a session', undefined, CREDENTIAL),
  object_store_ca_file: text('the path of a PEM file', undefined),
  object_store_write_rate: size(64 * 1024, DISK_MAX_BYTES, '32mb'),
};

/**
 * Explains what is wrong with a combination of settings that are each valid; undefined: nothing. `spell` writes a key
 * as the configuration does.
 */
export function objectStoreFault(settings: ObjectStoreSettings, spell: (key: string) => string): string | undefined {
  const { objectStore, objectStoreAccessKeyId: id, objectStoreSecretAccessKey: secret } = settings;
  const others = {
    object_store_endpoint: settings.objectStoreEndpoint,
    object_store_region: settings.objectStoreRegion,
    object_store_access_key_id: id,
    object_store_secret_access_key: secret,
    object_store_session_token: settings.objectStoreSessionToken,
    object_store_ca_file: settings.objectStoreCaFile,
  };
  if (objectStore === undefined) {
    const alone = Object.entries(others).find(([, value]) => value !== undefined);
    if (alone === undefined) return undefined;
    return `configuration key "${spell(alone[0])}" has no effect without ${spell('object_store')}; set that to s3://bucket/prefix, or leave the key out`;
  }
  if ((id === undefined) !== (secret === undefined)) {
    return `configuration keys "${spell('object_store_access_key_id')}" and "${spell('object_store_secret_access_key')}": give both of them, or none`;
  }
  if (others.object_store_session_token !== undefined && id === undefined) {
    return `configuration key "${spell('object_store_session_token')}" belongs to an access key; give ${spell('object_store_access_key_id')} and ${spell('object_store_secret_access_key')} as well`;
  }
  const isPlain = settings.objectStoreEndpoint?.trim().toLowerCase().startsWith('http://') === true;
  if (isPlain && settings.objectStoreCaFile !== undefined) {
    return `configuration key "${spell('object_store_ca_file')}": ${spell('object_store_endpoint')} begins with http://, which is not encrypted; use https://, or leave the file out`;
  }
  return undefined;
}
