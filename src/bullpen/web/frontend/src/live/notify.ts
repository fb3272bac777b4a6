// Title, icon and, if the person allows it, notifications: somebody waits.
import type { Agent } from '../model/nouns.ts'
import { askingInTerminal } from '../model/states.ts'
import { literal } from '../model/text.ts'
import { cell } from './cell.ts'
import { path } from './http.ts'
import { go } from './route.ts'
import { current, listen } from './store.ts'
import { waitingIn } from './world.ts'

type Consent = 'ask' | 'yes' | 'no' | 'none'

const SURE_MS = 2_000  // its approval may be on the way, or its answer
let isRefused = false

function consent(): Consent {
  if (isRefused || !('Notification' in window)) return 'none'
  return Notification.permission === 'granted' ? 'yes' : Notification.permission === 'denied' ? 'no' : 'ask'
}

const state = cell<Consent>(consent())
export const mayNotify = {
  use: () => state.use(),
  async ask(): Promise<void> {
    made('', {})  // shown to nobody yet: whether there are any
    if (!isRefused) await Notification.requestPermission()
    state.set(consent())
  },
}

/** A notification; null in a browser that has the word and not the thing, as Chrome on Android. */
function made(title: string, options: NotificationOptions): Notification | null {
  try {
    return new Notification(title, options)
  } catch {
    isRefused = true
    state.set(consent())
    return null
  }
}

function notify(title: string, options: NotificationOptions, place: string): void {
  const note = made(title, options)
  if (note) note.onclick = () => { window.focus(); go(place); note.close() }
}

function isWanted(): boolean {
  return document.visibilityState !== 'visible' && consent() === 'yes'
}

let told = new Set<string>()
let shown = ''

export function watchWaiting(): void {
  listen(() => {
    const { agents, approvals, isLoaded, link } = current()
    if (!isLoaded) return
    const number = waitingIn(current())
    const mark = link.is === 'live' ? (number ? `(${number}) ` : '') : '… '
    const title = `${mark}Bullpen`
    if (title !== shown) {
      shown = title
      document.title = title
      drawIcon(number)
    }
    const inTerminal = askingInTerminal(agents, approvals)
    const before = told
    told = new Set([...approvals.map(one => String(one.id)), ...inTerminal.map(keyOf)])
    if (!isWanted()) return
    for (const one of approvals.filter(each => !before.has(String(each.id))).slice(0, 3)) {
      notify(`${one.agent} ${one.questions.length ? 'has a question' : `wants ${one.tool}`}`, {
        body: literal(one.text).slice(0, 200), tag: `bullpen-${one.id}`,
      }, `/approvals/${one.id}`)
    }
    for (const agent of inTerminal.filter(each => !before.has(keyOf(each))).slice(0, 3)) {
      setTimeout(() => {
        if (isWanted() && told.has(keyOf(agent))) notify(`${agent.name} asks in its terminal`, { tag: `bullpen-${agent.run}` }, `/agents${path(agent.name)}/terminal`)
      }, SURE_MS)
    }
  })
}

function keyOf(agent: Agent): string {
  return `${agent.run} ${agent.since}`
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
