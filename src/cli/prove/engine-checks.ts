import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageVersion } from '../../node/reporting/package-version.js';
import { findPython } from '../../processes/programs.js';
import { PythonEngine } from '../../processes/python-engine.js';
import { EngineTarget } from '../demo/engine-target.js';
import { freshKeys, withNodes } from './own-nodes.js';
import { failed, notRun, passed, type Step, type Verdict } from './proof.js';

const AREA = 'Engine';
const PAGE_BYTES = 256 * 2 ** 10;
const PAGES = 64;
const ADVICE = 'the client needs Python 3.10 or newer: set MESHCACHE_PYTHON to the Python of your engine';
const NO_PYTHON = 'there is no python3 on PATH, and MESHCACHE_PYTHON is not set';
const VERSION_MAX_MS = 60_000;
/** Packages whose versions are asked for: the client, and the engines that have a connector. */
const PACKAGES = ['meshcache', 'sglang', 'vllm', 'lmcache'] as const;
/** Reads the versions without importing the packages, because engines take minutes and memory to load. */
const VERSIONS_PROGRAM = `
import importlib.metadata, importlib.util, json, pathlib, re, sys
def version(name):
    try:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        if name == "meshcache":
            text = (pathlib.Path(spec.origin).parent / "_version.py").read_text()
            return re.search('__version__ = "(.*)"', text).group(1)
        return importlib.metadata.version(name)
    except Exception as error:
        return f"unknown ({type(error).__name__})"
print(json.dumps({"python": sys.version.split()[0], **{name: version(name) for name in sys.argv[1:]}}))
`;

/** Version of Python and of each package that it finds; null: it is not there. */
export type PythonVersions = Readonly<Record<'python' | (typeof PACKAGES)[number], string | null>>;

/** What the Python of the engines has; undefined without Python. */
export async function pythonVersions(): Promise<PythonVersions | undefined> {
  const python = await findPython();
  if (python === undefined) return undefined;
  const { stdout } = await promisify(execFile)(python, ['-c', VERSIONS_PROGRAM, ...PACKAGES], {
    timeout: VERSION_MAX_MS,
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
  });
  return JSON.parse(stdout) as PythonVersions;
}

/** The Python client at the client socket of nodes, as an engine uses it. */
export function engineSteps(signal: AbortSignal): Step[] {
  const step = (check: string, run: () => Promise<Verdict>): Step => ({ area: AREA, check, advice: ADVICE, run });
  return [
    step('version of the Python client', clientVersion),
    step('pages between two engines in Python', () => roundTrip(signal)),
    step('engine that is installed', installedEngine),
  ];
}

async function clientVersion(): Promise<Verdict> {
  const versions = await pythonVersions();
  if (versions === undefined) return notRun(NO_PYTHON, ADVICE);
  const own = packageVersion();
  if (versions.meshcache === null) {
    const advice = 'install it where your engine runs: pip install "$(npx meshcache python-path)"';
    return notRun(`Python ${versions.python} has no package meshcache; that of this version is used`, advice);
  }
  if (versions.meshcache === own) return passed(`${own} in Python ${versions.python}, as the nodes`);
  const advice = 'install that of the nodes: pip install "$(npx meshcache python-path)"';
  return failed(`the Python client is of version ${versions.meshcache}, the nodes are of version ${own}`, advice);
}

async function installedEngine(): Promise<Verdict> {
  const versions = await pythonVersions();
  const advice = 'prove the cache under your engine and model: meshcache bench engine --help';
  if (versions === undefined) return notRun(NO_PYTHON, advice);
  const there = PACKAGES.filter((name) => name !== 'meshcache' && versions[name] !== null);
  const found = there.map((name) => `${name} ${versions[name]}`).join(', ');
  if (there.length === 0) return notRun(`Python ${versions.python} has neither SGLang nor vLLM nor LMCache`, advice);
  return notRun(`${found} is installed, and needs a model to run`, advice);
}

/** One engine computes and stores pages; another one, at another node, finds and reads them all. */
async function roundTrip(signal: AbortSignal): Promise<Verdict> {
  const python = await findPython();
  if (python === undefined) return notRun(NO_PYTHON, ADVICE);
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-prove-'));
  const socketOf = (index: number): string => join(folder, `node-${index}.sock`);
  const engines: EngineTarget[] = [];
  try {
    const options = { nodes: 2, pageBytes: PAGE_BYTES, config: {}, signal };
    return await withNodes(
      { ...options, nodeConfig: (index) => ({ client_socket: socketOf(index) }) },
      async ({ agents }) => {
        for (const agent of agents) {
          const engine = new PythonEngine(python, 'meshcache._demo');
          engines.push(new EngineTarget(engine, { pageBytes: PAGE_BYTES, nodeStatus: () => agent.status() }));
        }
        await Promise.all(engines.map((engine, index) => engine.start(socketOf(index), PAGES)));
        return await handOver(engines as [EngineTarget, EngineTarget]);
      },
    );
  } finally {
    await Promise.all(engines.map((engine) => engine.kill()));
    await rm(folder, { recursive: true, force: true });
  }
}

async function handOver([writer, reader]: readonly [EngineTarget, EngineTarget]): Promise<Verdict> {
  const keys = freshKeys(PAGES);
  await writer.run([keys]);
  await reader.run([keys]);
  const reports = [await writer.report(), await reader.report()] as const;
  const wrongBytes = reports[0].wrong_bytes + reports[1].wrong_bytes;
  const exceptions = reports.flatMap((report) => report.exceptions);
  const figures = { pages: PAGES, pages_hit: reports[1].pages_hit, wrong_bytes: wrongBytes };
  if (wrongBytes > 0) return failed(`${wrongBytes} wrong bytes reached an engine`, 'send this report', figures);
  if (exceptions.length > 0) return failed(`the client raised: ${exceptions[0]}`, ADVICE, figures);
  if (reports[1].pages_hit < PAGES) {
    const advice = 'is the machine busy or short of memory? See the log of the nodes: MESHCACHE_LOG=info';
    return failed(`an engine found ${reports[1].pages_hit} of ${PAGES} pages of another one`, advice, figures);
  }
  return passed(`${PAGES} pages, every byte right; they travel as "${reader.mode}"`, figures);
}
