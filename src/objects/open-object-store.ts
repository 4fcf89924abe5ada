import type { Environment } from '../base/environment/environment.js';
import type { HttpTls } from '../base/environment/http-client.js';
import { ConfigError } from '../base/errors.js';
import {
  type ObjectStorePlace,
  type ObjectStoreSettings,
  parseObjectStorePlace,
  parseObjectStoreServer,
} from '../base/settings/object-store-settings.js';
import { readAuthorityFile } from '../net/credentials/authority-file.js';
import { ObjectClient } from './object-client.js';
import { CredentialSource, regionOf } from './object-credentials.js';
import { ObjectNames, writerIdOf } from './object-format.js';
import { ObjectStore } from './object-store.js';

/** What a node needs to talk to its object store. */
export interface OpenedObjectStore {
  readonly place: ObjectStorePlace;
  readonly region: string;
  readonly credentials: CredentialSource;
  readonly client: ObjectClient;
  readonly store: ObjectStore;
}

type ObjectEnvironment = Pick<Environment, 'clock' | 'files' | 'host' | 'http' | 'log' | 'metrics'>;

/** The object store of a configuration, without a request; null: there is none. Reads files; throws `ConfigError`. */
export function openObjectStore(
  settings: ObjectStoreSettings,
  nodeId: string,
  env: ObjectEnvironment,
): OpenedObjectStore | null {
  const place = parseObjectStorePlace(settings.objectStore ?? '');
  if (place === undefined) return null;
  const region = regionOf(settings, env);
  const address = settings.objectStoreEndpoint ?? `https://s3.${region}.amazonaws.com`;
  const server = parseObjectStoreServer(address);
  if (server === undefined) {
    throw new ConfigError(
      `configuration key "object_store_region": ${JSON.stringify(region)} makes no address; give the name of a region, for example "eu-central-1"`,
    );
  }
  const credentials = new CredentialSource(settings, env);
  const tls = server.isTls ? tlsOf(settings, env) : undefined;
  const client = new ObjectClient({ endpoint: server.endpoint, tls, place, region, credentials, env });
  const store = new ObjectStore({ client, names: new ObjectNames(place.prefix), writer: writerIdOf(nodeId), env });
  return { place, region, credentials, client, store };
}

function tlsOf({ objectStoreCaFile: path }: ObjectStoreSettings, { files }: Pick<Environment, 'files'>): HttpTls {
  return path === undefined ? {} : { ca: readAuthorityFile('object_store_ca_file', path, files) };
}
