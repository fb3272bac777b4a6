// What a task says and does while it runs: its own stream, resumed where it broke off; polled where
// none gets through.
import type { Task } from '../model/nouns.ts'
import { path, refusal, Refused } from './http.ts'
import { failedMs, FIRST_MS, POLL_TIMEOUT_MS, SILENT_MS, SOUND_MS, taskPollMs } from './pace.ts'
import { type Sent, SentReader } from './sse.ts'
import { takeSlot } from './slots.ts'
import { current } from './store.ts'

export type Said =
  | { is: 'text'; text: string; isPartial: boolean }
  | { is: 'tool'; tool: string; detail: string }
  | { is: 'note'; text: string; isBad: boolean }

interface Heard { name: string; data: Record<string, unknown> }

/** What is shown after one more event. Pure. */
export function addSaid(said: Said[], { name, data }: Heard): Said[] {
  const last = said.at(-1)
  const text = String(data['text'] ?? '')
  switch (name) {
    case 'partial':
      if (last?.is === 'text' && last.isPartial && !data['is_first']) return [...said.slice(0, -1), { ...last, text: last.text + text }]
      return [...said, { is: 'text', text, isPartial: true }]
    case 'text': {
      const rest = last?.is === 'text' && last.isPartial ? said.slice(0, -1) : said
      const before = rest.at(-1)
      // Lines of a plain program belong together.
      if (data['is_line'] && before?.is === 'text' && !before.isPartial) return [...rest.slice(0, -1), { ...before, text: `${before.text}\n${text}` }]
      return [...rest, { is: 'text', text, isPartial: false }]
    }
    case 'tool': return [...said, { is: 'tool', tool: String(data['tool'] ?? ''), detail: String(data['detail'] ?? '') }]
    case 'retry': return [...said, { is: 'note', text: `tried again: ${String(data['why'] ?? data['reason'] ?? '')}`, isBad: false }]
    case 'denied': return [...said, { is: 'note', text: `${String(data['tool'] ?? 'a tool')} was denied`, isBad: true }]
    default: return said
  }
}

class HeldBack extends Error {}

/** Follow a task to its end: by its stream, or where none gets through by asking again and again.
 *  An answer that comes to an end is held back by nobody. */
export async function followTask(id: string, signal: AbortSignal, onHeard: (heard: Heard[]) => void, onEnd: (task: Task) => void): Promise<void> {
  let last = ''
  let isWorking = true
  let end: Heard | undefined
  let pollsUntil = 0
  const take = (sents: Sent[]) => {
    const heard: Heard[] = []
    for (const sent of sents) {
      if (sent.id) last = sent.id
      if (sent.data) heard.push({ name: sent.name, data: JSON.parse(sent.data) as Record<string, unknown> })
    }
    for (const one of heard) if (one.name === 'state') isWorking = one.data['state'] === 'working'
    end = heard.find(one => one.name === 'end')
    if (heard.length) onHeard(heard)
  }
  for (let failures = 0; ; failures++) {
    const release = isLinkPolled() || Date.now() < pollsUntil ? null : await takeSlot()
    const isPolled = release === null
    const began = Date.now()
    let isAnswered = false
    try {
      await read(id, last, isPolled, signal, sents => { isAnswered = true; take(sents) })
      if (isPolled) isAnswered = true
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && error.status < 500)) throw error
      if (error instanceof HeldBack) {
        pollsUntil = Date.now() + SOUND_MS
        continue
      }
    } finally {
      release?.()
    }
    if (end) return onEnd((end.data['task'] ?? end.data) as unknown as Task)
    if (isAnswered) failures = 0
    await pause(isPolled && isAnswered ? taskPollMs(isWorking, Date.now() - began) : failedMs(failures), signal)
  }
}

/** What it said after that, until the stream ends. */
async function read(id: string, last: string, isPolled: boolean, signal: AbortSignal, take: (sents: Sent[]) => void): Promise<void> {
  const late = new AbortController()
  const expect = (ms: number) => setTimeout(() => late.abort(isPolled ? new Error('no answer') : new HeldBack()), ms)
  let timer = expect(isPolled ? POLL_TIMEOUT_MS : FIRST_MS)
  try {
    const answer = await fetch(`/api/task${path(id)}/events${isPolled ? '?until_now=1' : ''}`, {
      signal: AbortSignal.any([signal, late.signal]), headers: last ? { 'Last-Event-ID': last } : {},
    })
    if (!answer.ok || !answer.body) throw await refusal(answer)
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
    const blocks = new SentReader()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      clearTimeout(timer)
      timer = expect(SILENT_MS)
      take(blocks.feed(value))
    }
  } finally {
    clearTimeout(timer)
  }
}

function isLinkPolled(): boolean {
  const { link } = current()
  return link.is === 'live' && link.isPolled
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve() }, { once: true })
  })
}
