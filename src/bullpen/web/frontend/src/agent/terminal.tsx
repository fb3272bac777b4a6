// A terminal in the page: watched, and typed into once it is taken over.
import { useEffect, useRef, useState } from 'preact/hooks'
import { restart } from '../live/connect.ts'
import { useWorld } from '../live/store.ts'
import { Literal } from '../parts/text.tsx'
import type { Opened, Size } from './xterm.ts'

type Shown = { is: 'opening' | 'watching' } | { is: 'taken'; isOwnSize: boolean } | { is: 'away' | 'over'; why: string }

const AGAIN_MS = 1_500
const ENDED = 4410
const LOGGED_OUT = 4401

export function TerminalView({ name, run }: { name: string; run: string }) {
  const box = useRef<HTMLDivElement>(null)
  const send = useRef<(said: object) => void>(() => {})
  const focus = useRef<() => void>(() => {})
  const [shown, setShown] = useState<Shown>({ is: 'opening' })
  useEffect(() => {
    let isOver = false
    let stop = () => {}
    void import('./xterm.ts').then(({ openTerminal }) => {
      if (isOver || !box.current) return
      stop = attach(openTerminal(box.current), name, setShown, say => { send.current = say }, call => { focus.current = call })
    })
    return () => { isOver = true; stop() }
  }, [name, run])
  const isTaken = shown.is === 'taken'
  const isLive = useWorld(world => world.link.is === 'live')
  return (
    <>
      <div class="acts">
        {isTaken
          ? <button class="btn" onClick={() => send.current({ take: false })}>Give back</button>
          : <button class="btn main" disabled={shown.is !== 'watching' || !isLive} onClick={() => { send.current({ take: true }); focus.current() }}>Take over</button>}
        <span class="dim" role="status">
          {shown.is === 'opening' && 'Opening…'}
          {shown.is === 'watching' && 'You watch; nothing that you type goes there.'}
          {isTaken && <><b class="work">You type here.</b> {shown.isOwnSize ? 'The terminal has the size of this window.' : 'Another window has set its size.'}</>}
          {(shown.is === 'away' || shown.is === 'over') && <Literal text={shown.why} />}
        </span>
      </div>
      <div class="screen" ref={box} data-terminal={name} aria-label={`terminal of ${name}`} role="group" />
    </>
  )
}

function attach(opened: Opened, name: string, show: (shown: Shown) => void, give: (send: (said: object) => void) => void, giveFocus: (call: () => void) => void): () => void {
  const { term, draw } = opened
  let socket: WebSocket | null = null
  let isOver = false
  let isTaken = false
  let undrawn = 0
  let asked = ''  // our own size, as we have told it
  let timer = 0
  const say = (said: object) => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(said)) }
  give(say)
  giveFocus(() => term.focus())
  // For tests: what it shows, without looking at pixels.
  box(term).text = () => Array.from({ length: term.buffer.active.length }, (_, at) => term.buffer.active.getLine(at)?.translateToString(true) ?? '').join('\n')

  const open = () => {
    if (isOver) return
    const query = new URLSearchParams({ agent: name, cols: String(term.cols), rows: String(term.rows) })
    socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/api/terminal?${query}`)
    socket.binaryType = 'arraybuffer'
    socket.onmessage = ({ data }) => {
      // After what came before it was drawn.
      if (typeof data === 'string') return term.write('', () => hear(JSON.parse(data) as Record<string, unknown>))
      const bytes = new Uint8Array(data as ArrayBuffer)
      term.write(bytes, () => {
        undrawn += bytes.length
        if (undrawn >= 32768 || bytes.length < 16384) { say({ ack: undrawn }); undrawn = 0 }
      })
    }
    socket.onclose = event => {
      setTaken(false)
      if (isOver) return
      if (event.code === LOGGED_OUT) restart()  // the stream would hear of it with its next event
      if (event.code === ENDED) { isOver = true; return show({ is: 'over', why: event.reason || 'The program has ended.' }) }
      show({ is: 'away', why: 'Not connected; it is tried again.' })
      timer = window.setTimeout(open, AGAIN_MS)
    }
  }
  const tellSize = () => {
    asked = `${term.cols},${term.rows}`
    say({ resize: [term.cols, term.rows] })
  }
  const setTaken = (taken: boolean) => {
    isTaken = taken
    term.options.disableStdin = !taken
    term.options.cursorBlink = false
  }
  const showTaken = (isOwnSize: boolean) => { show(isTaken ? { is: 'taken', isOwnSize } : { is: 'watching' }) }
  const hear = (said: Record<string, unknown>) => {
    if (said['resync']) { term.reset(); showTaken(true) }
    if ('taken' in said) {
      setTaken(said['taken'] === true)
      showTaken(true)
      if (isTaken) { draw(null); tellSize() }
    }
    if ('size' in said) {
      const size = said['size'] as Size
      term.reset()
      const isOwn = isTaken && asked === size.join()
      showTaken(isOwn)
      draw(isOwn ? null : size)
    }
    if ('away' in said) show({ is: 'away', why: `${String(said['away'])}; it comes back by itself.` })
    if ('ended' in said) { isOver = true; show({ is: 'over', why: String(said['ended']) }) }
  }
  const encoder = new TextEncoder()
  const typed = term.onData(text => { if (isTaken && socket?.readyState === WebSocket.OPEN) socket.send(encoder.encode(text)) })
  const binary = term.onBinary(text => { if (isTaken && socket?.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, one => one.charCodeAt(0))) })
  const sized = term.onResize(() => { if (isTaken && opened.isFitted()) tellSize() })
  open()
  return () => {
    isOver = true
    clearTimeout(timer)
    for (const each of [typed, binary, sized]) each.dispose()
    socket?.close()
    opened.dispose()
  }
}

function box(term: Opened['term']): { text?: () => string } {
  return term.element!.parentElement as unknown as { text?: () => string }
}
