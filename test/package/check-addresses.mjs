// Ends with status 1 unless a package.json has the addresses that the registry shows: npm runs it before it publishes.
// Without a repository, the relative links of the README lead nowhere on the registry's page.
import { readFileSync } from 'node:fs';

const KEYS = ['homepage', 'repository', 'bugs'];
/** Names that are kept free for examples, and so belong to nobody. */
const PLACEHOLDER = /(^|\.)(example(\.(com|net|org))?|invalid|localhost|test)$/;

function isAddress(text) {
  try {
    return !PLACEHOLDER.test(new URL(text.replace(/^git\+/, '')).hostname);
  } catch {
    return false;
  }
}

const manifest = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const missing = KEYS.filter((key) => !isAddress(String(manifest[key]?.url ?? manifest[key] ?? '')));
for (const key of missing) {
  console.error(`package.json has no address in "${key}"; give the URL where people find it, then publish again`);
}
process.exitCode = missing.length > 0 ? 1 : 0;
