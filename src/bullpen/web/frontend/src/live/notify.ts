// Title, icon and, if the person allows it, notifications: somebody waits.
import { literal } from '../model/text.ts'
import { cell } from './cell.ts'
import { go } from './route.ts'
import { current, listen } from './store.ts'

type Consent = 'ask' | 'yes' | 'no'

function consent(): Consent {
  if (!('Notification' in window)) return 'no'
  return Notification.permission === 'granted' ? 'yes' : Notification.permission === 'denied' ? 'no' : 'ask'
}

const state = cell<Consent>(consent())
export const mayNotify = {
  use: () => state.use(),
  async ask(): Promise<void> {
    await Notification.requestPermission()
    state.set(consent())
  },
}

let told = new Set<number>()
let shown = ''

export function watchWaiting(): void {
  listen(() => {
    const { approvals, isLoaded, link } = current()
    if (!isLoaded) return
    const mark = link.is === 'live' ? (approvals.length ? `(${approvals.length}) ` : '') : '… '
    const title = `${mark}Bullpen`
    if (title !== shown) {
      shown = title
      document.title = title
      drawIcon(approvals.length)
    }
    const ids = new Set(approvals.map(one => one.id))
    const fresh = approvals.filter(one => !told.has(one.id))
    told = ids
    if (document.visibilityState === 'visible' || consent() !== 'yes') return
    for (const one of fresh.slice(0, 3)) {
      const note = new Notification(`${one.agent} ${one.questions.length ? 'has a question' : `wants ${one.tool}`}`, {
        body: literal(one.text).slice(0, 200), tag: `bullpen-${one.id}`,
      })
      note.onclick = () => { window.focus(); go(`/approvals/${one.id}`); note.close() }
    }
  })
}

/** The icon with a number on it. */
function drawIcon(number: number): void {
  const link = document.querySelector<HTMLLinkElement>('#favicon')
  if (!link) return
  const canvas = document.createElement('canvas')
  canvas.width = canvas.height = 64
  const pen = canvas.getContext('2d')
  if (!pen) return
  pen.fillStyle = '#2f5bea'
  pen.roundRect(0, 0, 64, 64, 16)
  pen.fill()
  pen.strokeStyle = '#fff'
  pen.lineWidth = 6
  pen.lineCap = pen.lineJoin = 'round'
  pen.stroke(new Path2D('M18 16v32M18 16h15a8 8 0 0 1 0 16H18M18 32h17a8 8 0 0 1 0 16H18'))
  if (number) {
    pen.fillStyle = '#d92d20'
    pen.beginPath()
    pen.arc(46, 18, 18, 0, 7)
    pen.fill()
    pen.fillStyle = '#fff'
    pen.font = 'bold 26px sans-serif'
    pen.textAlign = 'center'
    pen.textBaseline = 'middle'
    pen.fillText(number > 9 ? '9+' : String(number), 46, 19)
  }
  link.type = 'image/png'
  link.href = canvas.toDataURL()
}
