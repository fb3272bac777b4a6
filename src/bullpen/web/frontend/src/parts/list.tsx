// Who needs me, then everybody: the left side of the overview and of an agent's page.
import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Agent, Landing } from '../model/nouns.ts'
import { group, GROUPINGS, type Listing, listingSearch, matches, readListing } from '../model/groups.ts'
import { askingInTerminal, isEnded } from '../model/states.ts'
import { path } from '../live/http.ts'
import { rememberGrouping, show, useSearch } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { Ask } from './ask.tsx'
import { StateIcon } from './icons.tsx'
import { AgentRow } from './row.tsx'
import { Ago, Chip, Empty } from './text.tsx'

const MOST_ASKS = 20
const ENDED_SHOWN = 5
const TYPED_MS = 250
const SEEN_SHARE = 0.15  // of a card: the edge of the next one is less
const INBOX_PADDING = 6

function noteOf(agent: Agent, landings: Landing[]): string {
  const entry = landings.findLast(one => one.name === agent.name)
  switch (entry?.status.state) {
    case 'waiting': return `waits to land on ${entry.target}`
    case 'building': case 'verifying': case 'moving': return `is landing on ${entry.target}`
    case 'came_back': return entry.status.why === 'conflict' ? `conflict with ${entry.target}` : 'checks failed'
    case 'landed': return entry.status.at > agent.since ? `landed on ${entry.target}` : ''
    default: return ''
  }
}

/** On a phone one card is seen at a time: the inbox is as high as that, not as the highest of all. */
function useSeenHeight(cards: string): RefObject<HTMLDivElement | null> {
  const inbox = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const box = inbox.current
    if (!box) return
    const fit = () => {
      const { left, right } = box.getBoundingClientRect()
      const isSeen = (card: Element) => {
        const place = card.getBoundingClientRect()
        return Math.min(place.right, right) - Math.max(place.left, left) > place.width * SEEN_SHARE
      }
      const heights = [...box.children].filter(isSeen).map(card => card.getBoundingClientRect().height)
      const isOneAtATime = getComputedStyle(box).display === 'flex' && heights.length > 0
      box.style.height = isOneAtATime ? `${Math.ceil(Math.max(...heights)) + INBOX_PADDING}px` : ''
    }
    const watch = new ResizeObserver(fit)
    for (const card of box.children) watch.observe(card)
    box.addEventListener('scroll', fit, { passive: true })
    return () => { watch.disconnect(); box.removeEventListener('scroll', fit) }
  }, [cards])
  return inbox
}

export function NeedsYou() {
  const approvals = useWorld(world => world.approvals)
  const agents = useWorld(world => world.agents)
  const inTerminal = askingInTerminal(agents, approvals)
  const number = approvals.length + inTerminal.length
  const inbox = useSeenHeight([...approvals.map(one => one.id), ...inTerminal.map(agent => agent.name)].join())
  return (
    <section aria-label="Needs you">
      <h2 class="h">Needs you <b class={number ? 'badge hot' : 'badge'}>{number}</b></h2>
      {number === 0 && <div class="card"><div class="pad dim state done"><StateIcon look="done" /><span class="dim">Nobody waits for you.</span></div></div>}
      {number > 0 && (
        <div class="inbox" ref={inbox}>
          {approvals.slice(0, MOST_ASKS).map((one, place) => <Ask key={one.id} approval={one} place={place} />)}
          {inTerminal.map(agent => (
            <article key={agent.name} class="ask" data-item={`terminal:${agent.name}`}>
              <div class="top"><Chip state={agent.state} /><a href={`/agents${path(agent.name)}/terminal`}><b>{agent.name}</b></a><span class="right dim small"><Ago at={agent.since} /></span></div>
              <div class="body"><p class="dim">Its own program asks, in its terminal.</p></div>
              <div class="foot acts"><a class="btn main" href={`/agents${path(agent.name)}/terminal`}>Open the terminal</a></div>
            </article>
          ))}
        </div>
      )}
      {approvals.length > MOST_ASKS && <p class="pad"><a href="/approvals">All {approvals.length} approvals</a></p>}
    </section>
  )
}

export function AgentList({ open }: { open: string }) {
  const agents = useWorld(world => world.agents)
  const broken = useWorld(world => world.broken)
  const landings = useWorld(world => world.landings)
  const isLive = useWorld(world => world.link.is === 'live')
  const search = useSearch()
  const listing = readListing(search)
  const [typed, setTyped] = useState<string | null>(null)  // and not in the address yet
  const [allEnded, setAllEnded] = useState(false)
  const filter = typed ?? listing.filter
  const list = (next: Listing, replaces: boolean) => {
    const tail = listingSearch(next)
    if (tail !== listingSearch(listing)) show(location.pathname + tail, replaces)
  }
  useEffect(() => {
    if (typed === null) return
    const timer = setTimeout(() => {
      // Back leads to the list without a filter, not through every letter of it.
      list({ ...listing, filter: typed }, Boolean(listing.filter && typed))
      setTyped(null)
    }, TYPED_MS)
    return () => clearTimeout(timer)
  }, [typed])
  const all = Object.values(agents)
  const found = filter ? all.filter(agent => matches(agent, filter)) : all
  return (
    <section class="agents" aria-label="Agents">
      <div class="h">
        <input data-filter type="search" aria-label="Filter agents" placeholder={`Filter ${all.length} agents   /`} value={filter} onInput={event => setTyped(event.currentTarget.value)} />
        <div class="segments" role="group" aria-label="Group by">
          {GROUPINGS.map(each => <button key={each} aria-pressed={listing.by === each} onClick={() => { rememberGrouping(each); list({ filter, by: each }, false) }}>{each}</button>)}
        </div>
      </div>
      {found.length === 0 && <div class="card"><Empty title={filter ? 'Nobody is called so' : 'No agents yet'}>{!filter && <code>bullpen run --role coder</code>}</Empty></div>}
      {group(found, listing.by).map(section => {
        const isLong = section.key === 'ended' && section.rows.length > ENDED_SHOWN && !allEnded && !filter
        const rows = isLong ? section.rows.filter(row => row.agent.name === open || !isEnded(row.agent.state)).concat(section.rows.slice(0, ENDED_SHOWN)) : section.rows
        return (
          <div key={section.key}>
            <h2 class="h">{section.title} <b class="badge">{section.rows.length}</b></h2>
            <div class="card rows">
              {rows.map(row => <AgentRow key={row.agent.name} agent={row.agent} depth={row.depth} isOpen={row.agent.name === open} isLive={isLive} note={noteOf(row.agent, landings)} search={search} />)}
              {isLong && <button class="btn plain" onClick={() => setAllEnded(true)}>{section.rows.length - ENDED_SHOWN} more</button>}
            </div>
          </div>
        )
      })}
      {Object.entries(broken).map(([name, why]) => (
        <p key={name} class="problem"><StateIcon look="bad" /><span>{name}: its session cannot be read: {why}</span></p>
      ))}
    </section>
  )
}
