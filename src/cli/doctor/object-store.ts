import { hostname } from 'node:os';
import type { Environment } from '../../base/environment/environment.js';
import type { HttpHeaders } from '../../base/environment/http-client.js';
import { formatEndpoint } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { OBJECT_STALL_MS } from '../../base/limits.js';
import type { ObjectStoreSettings } from '../../base/settings/object-store-settings.js';
import type { ObjectAnswer, ObjectFault } from '../../objects/object-answer.js';
import { decodeHeader, encodeHeader, ObjectNames, writerIdOf } from '../../objects/object-format.js';
import { type OpenedObjectStore, OTHER_TAG, openObjectStore } from '../../objects/object-store.js';
import type { Finding } from './finding.js';

const SUBJECT = 'object store';

/** Advice for each fault. */
const ADVICE: Readonly<Record<ObjectFault, string>> = {
  no_credentials:
    'set object_store_access_key_id and object_store_secret_access_key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials',
  wrong_key:
    'the store does not know the access key, its secret is wrong, or it has expired: check object_store_access_key_id and object_store_secret_access_key, or what AWS_* or the shared credentials file say',
  clock:
    'the clock of this machine and that of the store differ by more than the store allows (15 minutes with AWS): keep it right by NTP',
  forbidden:
    'the access key may not do this: allow s3:GetObject and s3:PutObject on the objects, and s3:ListBucket on the bucket, without which a missing object counts as forbidden',
  region:
    'the bucket is in another region: set object_store_region to it, or object_store_endpoint to the address of the store',
  no_bucket: 'make the bucket, or correct its name in object_store',
  unreachable:
    'check object_store_endpoint, the name server and the firewall; for a certificate that is not trusted, set object_store_ca_file',
  timed_out: 'the store is too slow, or a firewall drops the packets: nodes skip it, and read nothing from it',
  busy: 'the store is overloaded or broken: look at its own state; nodes skip it meanwhile',
  refused: 'the store does not understand the request: is object_store_endpoint one that speaks the S3 protocol?',
  too_long: 'is object_store_endpoint one that speaks the S3 protocol?',
  unwanted: 'is object_store_endpoint one that speaks the S3 protocol?',
  aborted: 'run the command again',
  closed: 'run the command again',
};

/** Reads and writes a test object, and explains what does not work. */
export async function checkObjectStore(settings: ObjectStoreSettings, env: Environment): Promise<Finding[]> {
  let opened: OpenedObjectStore | null;
  try {
    opened = openObjectStore(settings, 'doctor', env);
    await opened?.credentials.required();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [{ subject: SUBJECT, state: 'problem', detail: error.message, advice: 'a node would not start with it' }];
  }
  if (opened === null) return [];
  try {
    return await examine(opened, env);
  } finally {
    opened.client.close();
  }
}

async function examine({ client, place, region }: OpenedObjectStore, { clock }: Environment): Promise<Finding[]> {
  const where = `bucket ${place.bucket} at ${formatEndpoint(client.endpoint)}`;
  const writer = writerIdOf(`doctor-${hostname()}`);
  const name = new ObjectNames(place.prefix).ofTest(writer);
  const startMs = clock.nowMs();
  const read = await client.send({ method: 'GET', name, timeoutMs: OBJECT_STALL_MS });
  const tookMs = clock.nowMs() - startMs;
  if (read.kind === 'failed') return [problem(`reading from ${where}`, read, region)];
  if (read.kind === 'done' && decodeHeader(Buffer.concat(read.parts)) === undefined) {
    const other = { kind: 'failed', fault: 'refused', detail: 'the answer is not the test object' } as const;
    return [problem(`reading from ${where}`, other, region)];
  }
  const reading: Finding = {
    ...{ subject: SUBJECT, state: 'ok' },
    detail: `${where}, region ${region}, can be read; one request took ${tookMs.toFixed(0)} ms`,
  };
  const body = encodeHeader({
    ...{ kind: 'test', key: writer, writer, length: 0, checksum: 0 },
    ...{ generation: 0, version: 0, expires: 0 },
  });
  const write = (headers: HttpHeaders) =>
    client.send({ ...{ method: 'PUT', name, body: [body], timeoutMs: OBJECT_STALL_MS }, headers });
  const isNew = { 'If-None-Match': '*' };
  let conflicts = 0;
  for (const condition of [isNew, isNew, { 'If-Match': OTHER_TAG }]) {
    if (condition === isNew && conflicts > 0) continue;
    const written = await write(condition);
    if (written.kind === 'failed') return [reading, unwritable(where, written)];
    if (written.kind === 'precondition') conflicts++;
  }
  if (conflicts === 2) {
    return [reading, { subject: SUBJECT, state: 'ok', detail: 'can be written, and keeps the conditions of writes' }];
  }
  const advice =
    'nodes only read from it; use a store that keeps If-None-Match and If-Match, as AWS, MinIO and Ceph do';
  return [reading, { subject: SUBJECT, state: 'warning', detail: 'ignores the conditions of writes', advice }];
}

function problem(what: string, answer: Extract<ObjectAnswer, { kind: 'failed' }>, region: string): Finding {
  const { fault, detail } = answer;
  const given = fault === 'region' ? `; object_store_region is ${region}` : '';
  return { subject: SUBJECT, state: 'problem', detail: `${what} fails: ${detail}${given}`, advice: ADVICE[fault] };
}

/** A warning only, because a read-only store is still useful to a cluster that stores nothing there. */
function unwritable(where: string, { fault, detail }: Extract<ObjectAnswer, { kind: 'failed' }>): Finding {
  const advice = `pages are only read from it, and delete is false; ${ADVICE[fault]}`;
  return { subject: SUBJECT, state: 'warning', detail: `writing to ${where} fails: ${detail}`, advice };
}
