import test, { type ExecutionContext } from 'ava';
import { checkObjectStore } from '../../src/cli/doctor/object-store.js';
import { MeshCacheConfig } from '../../src/config.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { type Fault, S3Server } from '../_support/objects/s3-server.js';
import { freePort } from '../_support/support.js';

/** What the doctor finds with these settings of a node that uses the server. */
async function findings(s3: S3Server, more: Record<string, unknown> = {}, aheadMs = 0) {
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', ...s3.settings(more) });
  const clock = { ...systemClock, wallMs: () => systemClock.wallMs() + aheadMs };
  return checkObjectStore(config, systemEnvironment({ clock }));
}

async function problem(t: ExecutionContext, s3: S3Server, more: Record<string, unknown>, aheadMs = 0) {
  const found = await findings(s3, more, aheadMs);
  t.is(found.length, 1, JSON.stringify(found));
  t.is(found[0]?.state, 'problem');
  return `${found[0]?.detail} -> ${found[0]?.advice}`;
}

test('doctor: a store that works is ok, to read and to write', async (t) => {
  const s3 = await S3Server.start(t);
  for (let i = 0; i < 2; i++) {
    const found = await findings(s3);
    t.deepEqual(
      found.map(({ state }) => state),
      ['ok', 'ok'],
    );
  }
});

test('doctor: a wrong access key and a wrong secret are told, and not shown', async (t) => {
  const s3 = await S3Server.start(t);
  const unknown = await problem(t, s3, { object_store_access_key_id: 'UNKNOWNKEY' });
  t.regex(unknown, /InvalidAccessKeyId.*does not know the access key/);
  const wrong = await problem(t, s3, { object_store_secret_access_key: 'wrong-secret' });
  t.regex(wrong, /SignatureDoesNotMatch.*its secret is wrong/);
  for (const text of [unknown, wrong]) t.notRegex(text, /UNKNOWNKEY|wrong-secret|S3RVER/);
});

test('doctor: a clock that is off is told', async (t) => {
  const s3 = await S3Server.start(t);
  t.regex(await problem(t, s3, {}, 3_600_000), /RequestTimeTooSkewed.*NTP/);
});

test('doctor: a bucket that is not there is told', async (t) => {
  const s3 = await S3Server.start(t);
  t.regex(await problem(t, s3, { object_store: 's3://elsewhere/x' }), /NoSuchBucket.*make the bucket/);
});

test('doctor: a region, permissions and an address that are wrong are told', async (t) => {
  const s3 = await S3Server.start(t);
  const faults: readonly (readonly [Fault, RegExp])[] = [
    [
      { kind: 'error', status: 400, code: 'AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region><Code>x' },
      /AuthorizationHeaderMalformed.*is in eu-west-1.*object_store_region is us-east-1.*set object_store_region/,
    ],
    [{ kind: 'error', status: 301, code: 'PermanentRedirect' }, /PermanentRedirect.*set object_store_region/],
    [{ kind: 'error', status: 403, code: 'AccessDenied' }, /AccessDenied.*s3:ListBucket/],
    [{ kind: 'error', status: 503, code: 'SlowDown' }, /SlowDown.*overloaded/],
    [
      { kind: 'held', until: Promise.resolve(), body: Buffer.from('<html>') },
      /not the test object.*speaks the S3 protocol/,
    ],
    [{ kind: 'error', status: 404, code: '' }, /status 404.*speaks the S3 protocol/],
  ];
  for (const [fault, expected] of faults) {
    s3.fault = () => fault;
    t.regex(await problem(t, s3, {}), expected);
  }
  const nowhere = { object_store_endpoint: `http://127.0.0.1:${await freePort()}` };
  t.regex(await problem(t, s3, nowhere), /ECONNREFUSED.*check object_store_endpoint/);
});

test('doctor: a store that may only be read, or ignores conditions, is a warning', async (t) => {
  const s3 = await S3Server.start(t);
  s3.fault = ({ method }) => (method === 'PUT' ? { kind: 'error', status: 403, code: 'AccessDenied' } : undefined);
  const [, readOnly] = await findings(s3);
  t.is(readOnly?.state, 'warning');
  t.regex(readOnly?.advice ?? '', /only read.*s3:PutObject/);
  for (const conditions of [[], ['if-none-match']]) {
    const [, careless] = await findings(await S3Server.start(t, { conditions }));
    t.is(careless?.state, 'warning');
    t.regex(careless?.detail ?? '', /ignores the conditions/);
  }
});

test('doctor: no access key anywhere is told, with the places for one', async (t) => {
  const s3 = await S3Server.start(t);
  const { object_store_access_key_id: _, object_store_secret_access_key: __, ...settings } = s3.settings();
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', ...settings });
  const environment = systemEnvironment();
  const host = { ...environment.host, homePath: '/nowhere', variable: () => undefined };
  const [found] = await checkObjectStore(config, { ...environment, host });
  t.is(found?.state, 'problem');
  t.regex(found?.detail ?? '', /no access key.*AWS_ACCESS_KEY_ID.*\/nowhere\/\.aws\/credentials/);
});
