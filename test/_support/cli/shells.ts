import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './run-cli.js';

/** A shell in which the completions are tested. */
export type Shell = 'bash' | 'zsh' | 'fish';

/** Prompt of the interactive shells, which no command line has in it. */
const PROMPT = 'READY>';
const CLEAR_LINE = '\u0015';

/** Why a program is missing on this machine; empty if it is there. */
export function whyWithout(...programs: readonly string[]): string {
  const missing = programs.find((program) => spawnSync(program, ['--version']).error !== undefined);
  return missing === undefined ? '' : `no ${missing}`;
}

/** What an interactive zsh runs first: `compadd` also writes what it proposes into a file. */
const ZSH_START = (folder: string) => `
PS1='${PROMPT} '; LISTMAX=100000; setopt no_beep; unsetopt zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste
fpath=('${folder}' $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
  if (( \${@[(I)-[ODA]]} )); then builtin compadd "$@"; return; fi
  local -a hits
  builtin compadd -O hits "$@"
  print -rl -- $hits >> '${folder}/hits'
  builtin compadd "$@"
}
meshcache() { print -rn -- "got:"; print -rn -- "<\${(j:><:)@}>"; print }
`;

const BASH_START = (folder: string) => `
PS1='${PROMPT} '
bind 'set enable-bracketed-paste off' 'set bell-style none'
source '${folder}/_meshcache'
meshcache() { printf 'got:'; printf '<%s>' "$@"; echo; }
`;

/** An interactive shell at a terminal of its own. */
export class InteractiveShell {
  readonly #child: ChildProcess;
  readonly #folder: string;
  #output = '';

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.#folder = folder;
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.#output += text;
    });
  }

  /** Starts a shell with the completions of `script`. `folder`: an empty one. */
  static async start(shell: 'bash' | 'zsh', { script, folder }: { script: string; folder: string }) {
    writeFileSync(join(folder, '_meshcache'), script);
    writeFileSync(join(folder, 'hits'), '');
    const start = (shell === 'bash' ? BASH_START : ZSH_START)(folder);
    writeFileSync(join(folder, shell === 'bash' ? 'bashrc' : '.zshrc'), start);
    const command = shell === 'bash' ? `bash --noprofile --rcfile '${folder}/bashrc' -i` : 'zsh -d -i';
    const env = { ...process.env, TERM: 'dumb', ZDOTDIR: folder, HISTFILE: '/dev/null' };
    const started = new InteractiveShell(
      spawn('script', ['-qec', command, '/dev/null'], { env, stdio: ['pipe', 'pipe', 'ignore'], cwd: folder }),
      folder,
    );
    await until(() => started.#output.includes(PROMPT));
    return started;
  }

  /** Types keys, `\t` among them, and returns what the command printed. */
  async type(keys: string): Promise<string> {
    this.#output = '';
    this.#child.stdin?.write(`${keys}\r`);
    await until(() => /got:.*\r?\n[\s\S]*READY>/.test(this.#output));
    return /got:(.*?)\r?\n/.exec(this.#output)?.[1] ?? '';
  }

  /** Proposals of zsh for a line. */
  async proposals(line: string): Promise<string[]> {
    writeFileSync(join(this.#folder, 'hits'), '');
    this.#child.stdin?.write(`${line}\t`);
    await this.type(`${CLEAR_LINE}meshcache`);
    return sorted(readFileSync(join(this.#folder, 'hits'), 'utf8'));
  }

  /** Ends the shell. */
  end(): void {
    this.#child.stdin?.end();
    this.#child.kill();
  }
}

/** Proposals of bash or fish for lines, by a shell that is not interactive. */
export function proposalsOf(shell: 'bash' | 'fish', script: string, lines: readonly string[]): string[][] {
  const program = shell === 'bash' ? bashProgram(lines) : fishProgram(lines);
  const options = shell === 'bash' ? ['--noprofile', '--norc'] : ['--no-config'];
  const { stdout, stderr, status } = spawnSync(shell, [...options, '-c', `${script}\n${program}`], {
    encoding: 'utf8',
  });
  if (status !== 0 || stderr !== '') throw new Error(`${shell} ended with status ${status}: ${stderr}`);
  return stdout.split('==\n').slice(0, -1).map(sorted);
}

/** A line without quotes, as readline divides it. */
function bashProgram(lines: readonly string[]): string {
  const tries = lines.map((line) => {
    const words = line.split(/ |(=)/).filter((word) => word !== undefined);
    return `try ${words.map((word) => `'${word}'`).join(' ')}`;
  });
  return `try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _meshcache 2>/dev/null
    printf '%s\\n' "\${COMPREPLY[@]}" ==
  }\n${tries.join('\n')}`;
}

function fishProgram(lines: readonly string[]): string {
  return lines.map((line) => `complete -C '${line}' | string replace -r '\\t.*' ''; echo ==`).join('\n');
}

function sorted(text: string): string[] {
  return [...new Set(text.split('\n').filter((line) => line !== ''))].sort();
}
