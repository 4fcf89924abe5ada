import test from 'ava';
import { ConfigError } from '../../src/base/errors.js';
import { OBJECT_CREDENTIALS_MAX_AGE_MS } from '../../src/base/limits.js';
import { parseObjectStorePlace, parseObjectStoreServer } from '../../src/base/settings/object-store-settings.js';
import { MeshCacheConfig } from '../../src/config.js';
import { CredentialSource, credentialsOf, regionOf } from '../../src/objects/object-credentials.js';
import { systemEnvironment } from '../../src/system/system-environment.js';

const FILE = `
[default]
aws_access_key_id = AKIDEFAULT
aws_secret_access_key=secret/default==
# a comment
[ other ]
aws_access_key_id=AKIOTHER
aws_secret_access_key = secret-other
aws_session_token = token
`;

function config(more: Record<string, unknown> = {}): MeshCacheConfig {
  return MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', object_store: 's3://bucket/p', ...more });
}

/** An environment with these variables, and a shared credentials file. */
function environment(variables: Record<string, string>) {
  const real = systemEnvironment();
  let nowMs = 0;
  let text = FILE;
  const files = {
    ...real.files,
    status: async () => ({ ...({} as Awaited<ReturnType<typeof real.files.status>>), sizeBytes: text.length }),
    readFile: async () => Buffer.from(text),
  };
  const host = { ...real.host, homePath: '/home', variable: (name: string) => variables[name] };
  return {
    env: { ...real, clock: { ...real.clock, nowMs: () => nowMs }, files, host },
    turn: (ms: number, content: string) => {
      nowMs += ms;
      text = content;
    },
  };
}

test('objects: an access key comes from settings, else from the environment, else from the shared file', async (t) => {
  const keys = { object_store_access_key_id: 'AKISET', object_store_secret_access_key: 'set' };
  const variables = { AWS_ACCESS_KEY_ID: 'AKIENV', AWS_SECRET_ACCESS_KEY: 'env', AWS_SESSION_TOKEN: 'token' };
  const { env } = environment(variables);
  t.is((await new CredentialSource(config(keys), env).required()).accessKeyId, 'AKISET');
  t.deepEqual(await new CredentialSource(config(), env).required(), {
    ...{ accessKeyId: 'AKIENV', secretAccessKey: 'env', sessionToken: 'token' },
  });
  const { env: empty } = environment({});
  t.is((await new CredentialSource(config(), empty).required()).secretAccessKey, 'secret/default==');
  const { env: profile } = environment({ AWS_PROFILE: 'other' });
  t.is((await new CredentialSource(config(), profile).required()).sessionToken, 'token');
  const { env: wrong } = environment({ AWS_PROFILE: 'nobody' });
  await t.throwsAsync(new CredentialSource(config(), wrong).required(), { instanceOf: ConfigError, message: /nobody/ });
});

test('objects: the shared file is read again after a while', async (t) => {
  const { env, turn } = environment({});
  const source = new CredentialSource(config(), env);
  t.is((await source.required()).accessKeyId, 'AKIDEFAULT');
  turn(1_000, FILE.replace('AKIDEFAULT', 'AKINEXT'));
  t.is((await source.required()).accessKeyId, 'AKIDEFAULT');
  turn(60_000, FILE.replace('AKIDEFAULT', 'AKINEXT'));
  t.is((await source.required()).accessKeyId, 'AKINEXT');
});

test('objects: a shared file that is just being written does not take the key away', async (t) => {
  const { env, turn } = environment({});
  const source = new CredentialSource(config(), env);
  t.is((await source.current())?.accessKeyId, 'AKIDEFAULT');
  for (const half of ['', '[default]\naws_access_key_id = AKINEW\n']) {
    turn(OBJECT_CREDENTIALS_MAX_AGE_MS, half);
    t.is((await source.current())?.accessKeyId, 'AKIDEFAULT');
  }
  turn(OBJECT_CREDENTIALS_MAX_AGE_MS, FILE.replace('AKIDEFAULT', 'AKINEW'));
  t.is((await source.current())?.accessKeyId, 'AKINEW');
});

test('objects: a file without the profile has no key', (t) => {
  t.is(credentialsOf('[default]\naws_access_key_id=x\n', 'default'), undefined);
  t.is(credentialsOf('', 'default'), undefined);
});

test('objects: the region comes from settings, else from the environment', (t) => {
  t.is(regionOf(config({ object_store_region: 'eu-west-3' }), environment({ AWS_REGION: 'x' }).env), 'eu-west-3');
  t.is(regionOf(config(), environment({ AWS_REGION: 'eu-central-1' }).env), 'eu-central-1');
  t.is(regionOf(config(), environment({}).env), 'us-east-1');
});

test('objects: places and servers are parsed, and wrong ones refused without repeating a password', (t) => {
  t.deepEqual(parseObjectStorePlace('s3://kv-pages/llama/3'), { bucket: 'kv-pages', prefix: 'llama/3/' });
  t.deepEqual(parseObjectStorePlace('s3://kv-pages'), { bucket: 'kv-pages', prefix: '' });
  for (const wrong of [
    'kv-pages',
    's3://',
    's3://A/b',
    's3://ab',
    's3://bucket//x',
    's3://bucket/a b',
    's3://bucket/../x',
  ])
    t.is(parseObjectStorePlace(wrong), undefined, wrong);
  t.deepEqual(parseObjectStoreServer('https://minio:9000'), { endpoint: { host: 'minio', port: 9000 }, isTls: true });
  t.deepEqual(parseObjectStoreServer('http://[::1]'), { endpoint: { host: '::1', port: 80 }, isTls: false });
  for (const wrong of ['minio:9000', 'ftp://x', 'https://x:0', 'https://x/path'])
    t.is(parseObjectStoreServer(wrong), undefined);
  const error = t.throws(() => config({ object_store_endpoint: 'https://me:hunter2@minio' }), {
    instanceOf: ConfigError,
  });
  t.notRegex(error?.message ?? '', /hunter2/);
});

test('objects: settings that do not go together are refused', (t) => {
  const refused: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [{ object_store: undefined, object_store_region: 'x' }, /object_store_region.*no effect without object_store/],
    [{ object_store_access_key_id: 'x' }, /give both of them/],
    [{ object_store_session_token: 'x' }, /belongs to an access key/],
    [{ object_store_endpoint: 'http://x', object_store_ca_file: '/x' }, /not encrypted/],
  ];
  for (const [settings, message] of refused) t.throws(() => config(settings), { instanceOf: ConfigError, message });
});

test('objects: keys and secrets are not shown', (t) => {
  const keys = { object_store_access_key_id: 'AKISET', object_store_secret_access_key: 'hidden-secret' };
  const shown = JSON.stringify(config({ ...keys, object_store_session_token: 'hidden-token' }));
  t.notRegex(shown, /AKISET|hidden/);
});
