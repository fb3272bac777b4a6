// Keeps the world true: one stream of events with resume, and what has to be fetched again. Where no
// stream gets through (a proxy that keeps it until it ends), new events are asked for again and again.
import type { Agent, Approval, HubEvent, Landing, Task, UsageReport } from '../model/nouns.ts'
import { get, onLoggedOut, refusal, Refused } from './http.ts'
import { newsOf } from './news.ts'
import { againMs, failedMs, FIRST_MS, MOST_FAILURES, POLL_TIMEOUT_MS, pollMs, SILENT_MS, SLOT_MS, SOUND_MS } from './pace.ts'
import { takeSlot } from './slots.ts'
import { SentReader } from './sse.ts'
import { change, current } from './store.ts'
import { type Link, mergeAgents, type Part, take, type World } from './world.ts'

const FIGURES_MS = 10_000  // tokens and cost are no events
const NEWS_EVENTS = 200
const ALL: Part[] = ['agents', 'approvals', 'landings', 'tasks', 'usage']

let heard = Date.now()
let position: number | null = null
let attempt: AbortController | null = null
/** While no stream gets through: what asks again and again. */
let polling: AbortController | null = null
let isHubAway = false
let hasNews = false
const sleepers = new Set<() => void>()

class HeldBack extends Error {}
class NoSlot extends Error {}

export function connect(): void {
  onLoggedOut(() => { setLink({ is: 'logged out' }); stopPolling() })
  void follow()
  // After sleep, or in another network, a dead connection may look alive for minutes.
  setInterval(check, 2_000)
  addEventListener('online', restart)
  addEventListener('offline', () => lose('this device is offline'))
  document.addEventListener('visibilitychange', check)
  setInterval(() => {
    if (document.visibilityState === 'visible' && current().link.is === 'live') refresh(['agents', 'usage'])
  }, FIGURES_MS)
}

export function restart(): void {
  attempt?.abort()
  wakeUp()
}

function wakeUp(): void {
  for (const wake of [...sleepers]) wake()
}

function check(): void {
  if (Date.now() - heard <= SILENT_MS || current().link.is !== 'live') return
  lose('nothing was heard for a while')
  if (polling) wakeUp()
  else attempt?.abort(new HeldBack())
}

function setLink(link: Link): void {
  change(world => {
    if (world.link.is === 'logged out') return world
    const isBack = world.link.is === 'behind' && link.is === 'live'
    return { ...world, link, returns: world.returns + Number(isBack) }
  })
}

function lose(why: string): void {
  const { link, isLoaded } = current()
  if (link.is === 'behind') {
    if (link.why !== why) setLink({ ...link, why })
  } else if (isLoaded) {
    setLink({ is: 'behind', since: heard / 1000, why })
  }
}

// ── the stream ──

async function follow(): Promise<void> {
  for (let failures = 0, heldBack = 0; current().link.is !== 'logged out';) {
    const began = Date.now()
    let why = 'the view closed the connection'
    let isHeldBack = false
    try {
      await stream()
    } catch (error) {
      if (error instanceof NoSlot) {
        poll()
        await pause(SLOT_MS)
        continue
      }
      isHeldBack = error instanceof HeldBack
      // Browsers have words of their own for a request that reached nobody, and none for people.
      why = error instanceof Refused && error.status > 0 ? error.message
        : error instanceof Refused || error instanceof TypeError ? 'the view does not answer' : 'connecting again'
    }
    const lasted = Date.now() - began
    failures = isHeldBack || lasted > 5_000 ? 0 : failures + 1
    heldBack = isHeldBack ? (lasted > SOUND_MS ? 1 : heldBack + 1) : lasted > SOUND_MS ? 0 : heldBack
    if (isHeldBack || failures >= MOST_FAILURES) poll()
    if (!polling) lose(why)
    // While polls get through there is time; else whatever is away may be back at any moment.
    const isAnswered = polling && current().link.is === 'live'
    await pause(isHeldBack ? againMs(heldBack) : isAnswered ? againMs(failures) : failedMs(failures))
  }
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const wake = () => { clearTimeout(timer); sleepers.delete(wake); resolve() }
    const timer = setTimeout(wake, ms)
    sleepers.add(wake)
    signal?.addEventListener('abort', wake)
  })
}

async function stream(): Promise<void> {
  const own = attempt = new AbortController()
  // Without a gap: what it begins with is not older than the place where the stream goes on.
  const hasBegun = position === null
  if (position === null) position = await begin(own.signal)
  const release = await takeSlot()
  if (!release) throw new NoSlot()
  const headers: Record<string, string> = { 'Last-Event-ID': String(position) }
  const late = setTimeout(() => own.abort(new HeldBack()), FIRST_MS)
  try {
    const answer = await fetch('/api/events/stream', { headers, signal: own.signal })
    if (!answer.ok || !answer.body) throw await refusal(answer)
    await read(answer.body, !hasBegun, () => {
      clearTimeout(late)
      stopPolling()
    })
  } finally {
    clearTimeout(late)
    release()
  }
}

/** To its end. `isStale`: what is shown is older than where it begins. */
async function read(body: ReadableStream<Uint8Array<ArrayBuffer>>, isStale: boolean, onFirst: () => void): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  const blocks = new SentReader()
  isHubAway = false
  for (let isFirst = true; ; isFirst = false) {
    const { done, value } = await reader.read()
    if (done) return
    heard = Date.now()
    if (isFirst) onFirst()
    const events: HubEvent[] = []
    for (const sent of blocks.feed(value)) {
      if (sent.id) position = Number(sent.id)
      if (sent.name === 'hub') {
        isHubAway = (JSON.parse(sent.data) as { state: string }).state === 'away'
        if (isHubAway) lose('the hub is not running')
        else { isStale = true }
      } else if (sent.name === 'reset') {
        forget()
        isStale = true
      } else if (sent.data) {
        events.push(JSON.parse(sent.data) as HubEvent)
      }
    }
    if (events.length) receive(events)
    if (isHubAway) continue
    if (!hasNews) await loadNews(position ?? 0)
    if (isStale) {
      isStale = false
      await load()
    }
  }
}

/** The hub counts its events anew. */
function forget(): void {
  change(world => ({ ...world, lastEvent: 0, news: [] }))
}

function receive(events: HubEvent[]): void {
  let stale = new Set<Part>()
  change(world => {
    const taken = take(world, events)
    stale = taken.stale
    return taken.world
  })
  if (stale.size) refresh([...stale])
}

// ── without a stream ──

/** Until a stream gets through. */
function poll(): void {
  if (!polling) void askAgainAndAgain(polling = new AbortController())
}

function stopPolling(): void {
  polling?.abort()
  polling = null
}

async function askAgainAndAgain({ signal }: AbortController): Promise<void> {
  while (!signal.aborted) {
    try {
      await askOnce(AbortSignal.any([signal, AbortSignal.timeout(POLL_TIMEOUT_MS)]))
    } catch (error) {
      if (signal.aborted) return
      lose(error instanceof Refused ? error.message : 'the view does not answer')
    }
    await pause(pollMs(Object.values(current().agents)), signal)
  }
}

/** One request where nothing has happened; else also what has changed. After a gap everything. */
async function askOnce(signal: AbortSignal): Promise<void> {
  if (position !== null && hasNews && current().link.is === 'live' && await catchUp(position, signal)) return
  const last = position ?? 0
  const now = await begin(signal)
  if (now < last) forget()
  if (now < last || !hasNews) await loadNews(now)
  else if (now > last) await loadEvents(Math.max(last, now - NEWS_EVENTS), now, signal)
  position = now
}

async function loadEvents(after: number, last: number, signal: AbortSignal): Promise<void> {
  const { events } = await get<{ events: HubEvent[] }>('/events', { after, limit: NEWS_EVENTS }, signal)
  signal.throwIfAborted()
  change(world => take(world, events.filter(event => event.id <= last)).world)
}

/** What has happened since that event; false if that cannot be known: it is not of this history any
 *  more, or too much has happened. */
async function catchUp(last: number, signal: AbortSignal): Promise<boolean> {
  const { events } = await get<{ events: HubEvent[] }>('/events', { after: Math.max(0, last - 1), limit: NEWS_EVENTS }, signal)
  signal.throwIfAborted()
  heard = Date.now()
  if (last > 0 && events[0]?.id !== last || events.length === NEWS_EVENTS) return false
  let stale = new Set<Part>()
  change(world => {
    const taken = take(world, events.filter(event => event.id > last))
    stale = taken.stale
    return taken.world
  })
  position = events.at(-1)?.id ?? last
  await Promise.all([...stale].map(part => fetchPart(part, signal)))
  signal.throwIfAborted()
  const { link } = current()
  if (link.is !== 'live' || !link.isPolled) setLink({ is: 'live', isPolled: true })
  return true
}

// ── what is fetched ──

interface Start {
  position: number
  agents: { agents: Agent[]; broken: Record<string, string> }
  approvals: { approvals: Approval[] }
  landings: { landings: Landing[] }
  tasks: { tasks: Task[] }
  usage: UsageReport
}

/** All that the page shows, and the last event that is in it. */
async function begin(signal: AbortSignal): Promise<number> {
  const { position, agents: { agents, broken }, approvals: { approvals }, landings: { landings }, tasks: { tasks }, usage } = await get<Start>('/start', {}, signal)
  signal.throwIfAborted()
  heard = Date.now()
  change(world => ({ ...world, agents: mergeAgents(world, agents), broken, approvals, landings, tasks, usdToday: usage.total.usd, loaded: position, isLoaded: true }))
  setLink({ is: 'live', isPolled: polling !== null })
  return position
}

/** Everything anew; only then the page is live again. */
async function load(): Promise<void> {
  await Promise.all(ALL.map(part => fetchPart(part)))
  if (!isHubAway) setLink({ is: 'live', isPolled: false })
}

async function loadNews(last: number): Promise<void> {
  const after = Math.max(0, last - NEWS_EVENTS)
  const { events } = await get<{ events: HubEvent[] }>('/events', { after, limit: NEWS_EVENTS })
  // What came after the stream began comes through the stream.
  const old = events.filter(event => event.id <= last).map(newsOf).filter(item => item !== null).reverse()
  change(world => {
    const known = new Set(world.news.map(item => item.id))
    return { ...world, news: [...world.news, ...old.filter(item => !known.has(item.id))] }
  })
  hasNews = true
}

const fetching = new Map<Part, Promise<void>>()
const wanted = new Set<Part>()

/** Fetch parts again. What is asked for while it is fetched is fetched once more. */
export function refresh(parts: Part[]): void {
  for (const part of parts) {
    if (fetching.has(part)) {
      wanted.add(part)
      continue
    }
    const done = fetchPart(part).catch((error: unknown) => {
      lose(error instanceof Error ? error.message : String(error))
    }).finally(() => {
      fetching.delete(part)
      if (wanted.delete(part)) refresh([part])
    })
    fetching.set(part, done)
  }
}

let begun = 0
const shown = new Map<Part, number>()

/** What was asked for later is not overwritten by an answer that took longer. */
async function fetchPart(part: Part, signal?: AbortSignal): Promise<void> {
  const number = ++begun
  const show = (next: (world: World) => World) => {
    if (number < (shown.get(part) ?? 0)) return
    shown.set(part, number)
    change(next)
  }
  switch (part) {
    case 'agents': {
      const { agents, broken } = await get<{ agents: Agent[]; broken: Record<string, string> }>('/agents', {}, signal)
      return show(world => ({ ...world, agents: mergeAgents(world, agents), broken }))
    }
    case 'approvals': {
      const { approvals } = await get<{ approvals: Approval[] }>('/approvals', {}, signal)
      return show(world => ({ ...world, approvals }))
    }
    case 'landings': {
      const { landings } = await get<{ landings: Landing[] }>('/landings', { all: 1 }, signal)
      return show(world => ({ ...world, landings }))
    }
    case 'tasks': {
      const { tasks } = await get<{ tasks: Task[] }>('/tasks', {}, signal)
      return show(world => ({ ...world, tasks }))
    }
    case 'usage': {
      const { total } = await get<UsageReport>('/usage', { by: 'day', since_seconds: 0 }, signal)
      return show(world => ({ ...world, usdToday: total.usd }))
    }
  }
}
