export default {
  files: ['build/test/*.test.js'],
  nodeArguments: ['--enable-source-maps'],
  workerThreads: false,
  concurrency: 2,
  timeout: '3m',
  require: ['./test/exits.mjs'],
};
