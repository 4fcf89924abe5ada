import { ProtocolError } from '../../base/errors.js';
import { FINGERPRINT, FINGERPRINT_ALLOWED } from '../../base/settings/fields.js';
import { BodyReader, BodyWriter } from './body.js';

/** Body of FINGERPRINT: the fingerprint to tell all attached clients of one name. */
export interface FingerprintRequest {
  readonly client: string;
  /** The fingerprint; empty if the namespace has none. */
  readonly fingerprint: string;
}

export function encodeFingerprint({ client, fingerprint }: FingerprintRequest): Buffer {
  return new BodyWriter().text16(client).text16(fingerprint).done();
}

/** Decodes FINGERPRINT. Throws `ProtocolError` for a fingerprint that no namespace can have. */
export function decodeFingerprint(body: Buffer): FingerprintRequest {
  const reader = new BodyReader(body);
  const request = { client: reader.text16(), fingerprint: checked(reader.text16()) };
  reader.end();
  return request;
}

/** Body of the notice that tells a client its fingerprint. */
export function encodeFingerprintNotice(fingerprint: string): Buffer {
  return new BodyWriter().text16(fingerprint).done();
}

export function decodeFingerprintNotice(body: Buffer): string {
  const reader = new BodyReader(body);
  const fingerprint = checked(reader.text16());
  reader.end();
  return fingerprint;
}

function checked(fingerprint: string): string {
  if (fingerprint === '' || FINGERPRINT.test(fingerprint)) return fingerprint;
  throw new ProtocolError(`a fingerprint has ${FINGERPRINT_ALLOWED}; an empty one is none`);
}
