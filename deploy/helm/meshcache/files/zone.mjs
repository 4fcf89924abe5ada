// The init container `zone`: writes the label of this machine as the setting `zone`.
import { readFileSync, writeFileSync } from 'node:fs';

const { NODE_NAME, ZONE_LABEL, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT } = process.env;
const folder = process.env.TOKEN_FOLDER ?? '/var/run/secrets/kubernetes.io/serviceaccount';
const host = KUBERNETES_SERVICE_HOST?.includes(':') ? `[${KUBERNETES_SERVICE_HOST}]` : KUBERNETES_SERVICE_HOST;
const url = `https://${host}:${KUBERNETES_SERVICE_PORT}/api/v1/nodes/${NODE_NAME}`;
const token = readFileSync(`${folder}/token`, 'utf8').trim();
const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(10_000) });
if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
const { metadata } = await answer.json();
const zone = metadata.labels?.[ZONE_LABEL];
if (!zone) throw new Error(`machine ${NODE_NAME} has no label ${ZONE_LABEL}; give all machines one, or set zone.from to none`);
writeFileSync(`${process.env.ZONE_FOLDER ?? '/etc/meshcache-zone'}/node.json`, JSON.stringify({ zone }));
