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

const FONT = 13
const LEAST_FONT = 6  // what is wider still is scrolled
const LINE = 1.2
const SHARE_OF_HEIGHT = 0.7  // of the window, for a terminal that is watched

export type Size = [cols: number, rows: number]
export interface Opened {
  term: Terminal
  /** Draw a terminal of that size, smaller if there is no room; null: one that fills its box. */
  draw: (size: Size | null) => void
  /** Whether its size is that of its box. */
  isFitted: () => boolean
  dispose: () => void
}

export function openTerminal(box: HTMLElement): Opened {
  const term = new Terminal({
    theme: THEME, fontSize: FONT, lineHeight: LINE, scrollback: 5_000, disableStdin: true, screenReaderMode: false,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
  })
  const fitting = new FitAddon()
  term.loadAddon(fitting)
  term.open(box)
  let wanted: Size | null = null
  const fit = () => {
    if (!box.offsetWidth || !box.offsetHeight) return
    box.classList.toggle('watched', wanted !== null)
    term.options.fontSize = wanted ? fontFor(wanted) : FONT
    if (wanted) term.resize(...wanted)
    else fitting.fit()
  }
  const watch = new ResizeObserver(fit)
  watch.observe(box)
  fit()
  const screen = box.querySelector<HTMLElement>('.xterm-screen')!
  const cell = { width: screen.offsetWidth / term.cols / FONT, height: screen.offsetHeight / term.rows / FONT }
  const fontFor = ([cols, rows]: Size) => {
    const style = getComputedStyle(box)
    const width = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
    const font = Math.min(FONT, width / (cols * cell.width), innerHeight * SHARE_OF_HEIGHT / (rows * cell.height))
    return Math.max(LEAST_FONT, Math.floor(font * 20) / 20)
  }
  return {
    term,
    draw: size => { wanted = size; fit() },
    isFitted: () => wanted === null,
    dispose: () => { watch.disconnect(); term.dispose() },
  }
}
