import { check } from './fuzzer.js';

const SECRET_KEY = /^(cluster_secret|clusterSecret|metrics_token|metricsToken)$/;
/** Shorter ones may stand in a message by chance. */
const SECRET_MIN_CHARACTERS = 8;

/** What a mapping gives as a secret, and nowhere else, stands in no message. */
export function checkSecrecy(mapping: unknown, messages: readonly string[]): void {
  if (typeof mapping !== 'object' || mapping === null) return;
  const secrets: string[] = [];
  const others: string[] = [];
  for (const [key, value] of Object.entries(mapping)) {
    others.push(key);
    if (!SECRET_KEY.test(key)) collectText(value, others);
    else if (Array.isArray(value)) secrets.push(...value.filter((item) => typeof item === 'string'));
    else if (typeof value === 'string') secrets.push(value);
  }
  for (const secret of secrets) {
    const isSecret = secret.length >= SECRET_MIN_CHARACTERS && !others.some((text) => text.includes(secret));
    check(!isSecret || !messages.some((message) => message.includes(secret)), 'a secret in a message');
  }
}

function collectText(value: unknown, texts: string[]): void {
  if (typeof value === 'string') texts.push(value);
  if (typeof value !== 'object' || value === null) return;
  for (const [key, item] of Object.entries(value)) {
    texts.push(key);
    collectText(item, texts);
  }
}
