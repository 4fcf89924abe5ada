import type { Fuzzer } from './fuzzer.js';
import { authentication } from './targets/auth.js';
import { clearCalls } from './targets/clears.js';
import { agentFiles, configFiles, traceFiles } from './targets/cli-files.js';
import { clientConnection, clientMessages } from './targets/client-socket.js';
import { commandLine, environmentVariables } from './targets/command-line.js';
import { configuration, sizes } from './targets/config.js';
import { keyColumns, locationColumns } from './targets/directory.js';
import { directoryAnswers } from './targets/directory-answers.js';
import { directoryServer } from './targets/directory-server.js';
import { discoveryAnswers, discoveryServer } from './targets/discovery.js';
import { discoveryDeltas, masterAnswers } from './targets/discovery-changes.js';
import { diskFolders } from './targets/disk-folder.js';
import { journalFiles, journalHeaders, journalRecords } from './targets/disk-index.js';
import { holdAnswers, holdCalls } from './targets/hold-calls.js';
import { keyEncoding } from './targets/keys.js';
import { leavingCalls } from './targets/leaving.js';
import { mapAnswers, mapQuestions } from './targets/map-calls.js';
import { metricsHttp } from './targets/metrics-http.js';
import { nodeCalls } from './targets/node-calls.js';
import { objectErrors, objectHeaders } from './targets/object-headers.js';
import { locations, nodeRecords } from './targets/records.js';
import { clusterReports, statusAnswers } from './targets/reports.js';
import { respCommands, respConnection } from './targets/resp.js';
import { rpcClient } from './targets/rpc-client.js';
import { rpcFrames } from './targets/rpc-frames.js';
import { rpcMessage } from './targets/rpc-message.js';
import { rpcServer } from './targets/rpc-server.js';
import { secretFiles, tlsFiles } from './targets/security-files.js';
import { servedConnection } from './targets/served-connection.js';
import { tcpReading } from './targets/tcp-reading.js';
import { tcpServing } from './targets/tcp-serving.js';

/** Everything that decodes what others have written: peers, disks, users. */
export const FUZZERS: readonly Fuzzer[] = [
  rpcMessage,
  rpcFrames,
  rpcServer,
  rpcClient,
  servedConnection,
  tcpServing,
  tcpReading,
  clientMessages,
  clientConnection,
  respCommands,
  respConnection,
  ...authentication,
  nodeRecords,
  locations,
  discoveryAnswers,
  discoveryServer,
  masterAnswers,
  discoveryDeltas,
  keyColumns,
  locationColumns,
  directoryServer,
  directoryAnswers,
  nodeCalls,
  clearCalls,
  holdCalls,
  holdAnswers,
  leavingCalls,
  mapQuestions,
  mapAnswers,
  objectHeaders,
  objectErrors,
  clusterReports,
  statusAnswers,
  metricsHttp,
  configuration,
  sizes,
  configFiles,
  environmentVariables,
  commandLine,
  secretFiles,
  tlsFiles,
  traceFiles,
  agentFiles,
  journalHeaders,
  journalRecords,
  journalFiles,
  diskFolders,
  keyEncoding,
];
