// xterm.js, loaded when the first terminal is opened.
import { FitAddon } from '@xterm/addon-fit'
import { Terminal } from '@xterm/xterm'
import '@xterm/xterm/css/xterm.css'

// xterm writes <style> elements and knows no nonce; without one they are refused by the policy.
const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content
if (nonce) {
  const create = document.createElement.bind(document)
  document.createElement = ((tag: string, options?: ElementCreationOptions) => {
    const made = create(tag, options)
    if (tag === 'style') made.nonce = nonce
    return made
  }) as typeof document.createElement
}

const THEME = {
  background: '#11151c', foreground: '#d6dbe6', cursor: '#86aaff', selectionBackground: '#2d4a80',
  black: '#2b3240', red: '#ff8f86', green: '#7fd6a2', yellow: '#f0c674', blue: '#7fb2ff', magenta: '#d3a6f2', cyan: '#7fd8de', white: '#d6dbe6',
  brightBlack: '#7d899b', brightRed: '#ffaaa2', brightGreen: '#9be7b8', brightYellow: '#f7d794', brightBlue: '#a5c9ff', brightMagenta: '#e2c1f8', brightCyan: '#a5e8ec', brightWhite: '#ffffff',
}

export function openTerminal(box: HTMLElement): { term: Terminal; fit: () => void; dispose: () => void } {
  const term = new Terminal({
    theme: THEME, fontSize: 13, lineHeight: 1.2, scrollback: 5_000, disableStdin: true, screenReaderMode: false,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
  })
  const fitting = new FitAddon()
  term.loadAddon(fitting)
  term.open(box)
  const fit = () => { if (box.offsetWidth && box.offsetHeight) fitting.fit() }
  const watch = new ResizeObserver(fit)
  watch.observe(box)
  fit()
  return { term, fit, dispose: () => { watch.disconnect(); term.dispose() } }
}
