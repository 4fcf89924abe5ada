// The init container `zone`: writes the label of its machine as the setting `zone`.
import { readFileSync, writeFileSync } from 'node:fs';

const { NODE_NAME, ZONE_LABEL, TOKEN_FILE, CONFIG_FILE } = process.env;
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
const url = `https://${host.includes(':') ? `[${host}]` : host}:${port}/api/v1/nodes/${NODE_NAME}`;
const authorization = `Bearer ${readFileSync(TOKEN_FILE, 'utf8').trim()}`;
const answer = await fetch(url, { headers: { authorization }, signal: AbortSignal.timeout(10_000) });
if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
const { metadata } = await answer.json();
const zone = metadata.labels?.[ZONE_LABEL];
if (!zone) throw new Error(`machine ${NODE_NAME} has no label ${ZONE_LABEL}; give all machines one, or set zone.from to none`);
writeFileSync(CONFIG_FILE, JSON.stringify({ zone }));
